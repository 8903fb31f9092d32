"""CUDA implementations of the operations: thin wrappers that launch the libraries that build.py compiles. Arguments are checked."""
