"""Errors that are the user's to mend, each one line."""


class MessageError(ValueError):
    """A conversation that cannot be encoded: which message, what came, what is wanted."""
