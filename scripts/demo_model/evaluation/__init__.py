"""Modules of scripts/demo_model/evaluate.py: the variants of the engine that it compares, and the plot."""
