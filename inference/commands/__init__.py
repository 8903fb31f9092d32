"""The terminal: one module for each command of `deepseek-v32`, and what they share."""
