"""Batch-invariant implementations for CPUs: the bits of a row depend only on that row's inputs (docs/determinism.md)."""
