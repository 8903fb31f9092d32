"""The chat in the browser; `mount.mount_chat` puts it into an HTTP application."""

DEMO_NAME = "deepseek-v3.2-demo"  # the name under which the shipped checkpoint is served
