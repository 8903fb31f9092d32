"""Facts in texts that nobody says: tables, lists, forms, logs, e-mails, minutes, chats. A quote is a whole line."""

from .attributes import json_lines, key_values, notes
from .attributes import table as attribute_table
from .forms import form, receipt, recipe
from .letters import chat, listing, mail, minutes
from .logs import log
from .tables import Line, table

__all__ = ["LAYOUTS", "Line"]

LAYOUTS = (
    *(table,) * 11, *(form,) * 5, *(log,) * 4, chat, chat, mail, minutes, minutes, receipt, recipe,
    key_values, key_values, attribute_table, attribute_table, json_lines, listing, notes,
)  # fmt: skip
