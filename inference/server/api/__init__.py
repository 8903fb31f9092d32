"""The OpenAI-compatible HTTP interface. `server.create_app` assembles it."""
