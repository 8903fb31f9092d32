"""What scripts/evaluate.py is made of: the variants of the engine that it compares, and the plot."""
