"""What scripts/train_demo.py is made of: model, sparse attention, optimiser, data, measurement, export."""
