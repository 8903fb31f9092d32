"""Parts of scripts/break_it.py. Each campaign is a module with `run(seed, count, …) -> dict`, whose `failures` should be empty."""
