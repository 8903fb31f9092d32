"""Parts that the benchmarks of whole engine steps share."""
