"""The chat in the browser; `mount.mount_chat` puts it into an HTTP application."""
