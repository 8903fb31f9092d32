"""Modules of scripts/demo_model/train.py: model, sparse attention, optimiser, schedule, data, measurement, export."""
