"""The forward pass of a step: inputs, caches, CUDA graphs, and what is read back."""
