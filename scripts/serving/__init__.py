"""What scripts/benchmark_server.py is made of: a server to measure, and a lean client."""
