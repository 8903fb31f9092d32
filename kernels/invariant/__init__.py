"""Batch-invariant implementations for CPUs: the bits of a row depend on that row's inputs alone (docs/determinism.md)."""
