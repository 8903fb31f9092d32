"""Parts of scripts/break_it.py: one campaign a module with `run(seed, count, …) -> dict`, whose `failures` should be empty."""
