"""Parts of scripts/break_it.py: one campaign a module, each with `run(seed, count, …) -> dict`; its `failures` should be empty."""
