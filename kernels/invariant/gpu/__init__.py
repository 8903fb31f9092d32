"""Batch-invariant implementations for Hopper GPUs: compiled kernels with a fixed plan (docs/determinism.md)."""
