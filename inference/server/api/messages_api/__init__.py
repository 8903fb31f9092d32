"""/v1/messages: Anthropic's API, by translation from and to a conversation of chat."""
