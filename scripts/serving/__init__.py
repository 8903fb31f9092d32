"""Parts of scripts/bench/server.py: a server to measure and a lean client."""
