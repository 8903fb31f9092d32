"""CUDA bodies of the operations: thin wrappers that launch what build.py compiles. Arguments come checked."""
