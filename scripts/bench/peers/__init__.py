"""What bench/against_peers.py compares: cases, public kernels, and how samples are taken."""
