"""Parts of scripts/benchmark_server.py: a server to measure and a lean client."""
