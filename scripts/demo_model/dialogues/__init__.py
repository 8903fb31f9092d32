"""Generator of conversations: open vocabulary, thoughts of two steps, calls of functions."""

from .conversation import BASE, FAMILIES, write
from .turns import Conversation, Turn

__all__ = ["BASE", "FAMILIES", "Conversation", "Turn", "write"]
