"""The chat in the browser; `mount.mount_chat` puts it into an HTTP application."""

from ...model.demo import NAME as DEMO_NAME

__all__ = ["DEMO_NAME"]
