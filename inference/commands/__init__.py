"""The command line: one module for each command of `deepseek-v32`, and the modules that several commands use."""
