"""Modules of scripts/train_demo.py: model, sparse attention, optimiser, schedule, data, measurement, export."""
