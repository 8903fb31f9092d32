"""The demo's conversations: a generator of long chats with facts to remember, deterministic by seed, no outside data."""

from .conversation import NOT_TOLD, Conversation, Turn, write

__all__ = ["NOT_TOLD", "Conversation", "Turn", "write"]
