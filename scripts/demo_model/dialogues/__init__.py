"""The generator of conversations that the demo is trained and measured on: `write` makes one from a seed."""

from .conversation import FAMILIES, write
from .turns import Conversation, Turn

__all__ = ["FAMILIES", "Conversation", "Turn", "write"]
