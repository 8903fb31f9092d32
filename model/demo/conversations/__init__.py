"""Generator of the demo's conversations: long chats with facts to remember, deterministic by seed, without outside data."""

from .conversation import UNANSWERABLE, Conversation, Turn, write

__all__ = ["UNANSWERABLE", "Conversation", "Turn", "write"]
