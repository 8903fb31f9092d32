"""Facts in texts that nobody says: tables, lists, forms, logs, e-mails, minutes, chats. A quote is a whole line."""

from .attributes import json_lines, key_values, notes
from .attributes import table as attribute_table
from .chats import chat
from .drawn import Line
from .forms import form
from .letters import listing, mail, minutes
from .logs import log
from .receipts import receipt, recipe
from .tables import table

__all__ = ["LAYOUTS", "Line"]

LAYOUTS = (
    *(table,) * 11, *(form,) * 5, *(log,) * 4, chat, chat, mail, minutes, minutes, receipt, recipe,
    key_values, key_values, attribute_table, attribute_table, json_lines, listing, notes,
)  # fmt: skip
