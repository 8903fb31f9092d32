"""One engine for many clients: `service` for threads, `api` for HTTP, `app` for both together."""
