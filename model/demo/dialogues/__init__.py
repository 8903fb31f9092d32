"""Generator of conversations for the next demo checkpoint: open vocabulary, thoughts of two steps, calls of functions."""

from .conversation import Conversation, Turn, write

__all__ = ["Conversation", "Turn", "write"]
