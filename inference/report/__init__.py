"""Reports of what DeepSeek Sparse Attention selected: plain data in, JSON or a self-contained HTML page out."""
