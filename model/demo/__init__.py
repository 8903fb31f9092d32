"""The checkpoint that ships inside the package."""

NAME = "deepseek-v3.2-demo"
