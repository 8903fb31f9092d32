"""Modules of scripts/evaluate.py: the variants of the engine that it compares, and the plot."""
