"""Generator of conversations: open vocabulary, thoughts of two steps, calls of functions."""

from .conversation import write
from .turns import Conversation, Turn

__all__ = ["Conversation", "Turn", "write"]
