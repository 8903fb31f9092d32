"""From logits to tokens: filters, noise, grammars, and the choice of tokens inside CUDA graphs."""
