"""`--check-cache`: stamps of cache entries, and their comparison while the engine runs."""
