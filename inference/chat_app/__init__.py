"""What the chat in the browser is made of; `inference.web` puts it together."""
