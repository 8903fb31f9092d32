"""The OpenAI-compatible HTTP interface; `server.create_app` puts its parts together."""
