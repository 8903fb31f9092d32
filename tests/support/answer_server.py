"""OpenAI's API over HTTP in a thread: only the two answer routes and the list of models."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving_answers(answerer: Any) -> Iterator[str]:
    """The base address of a server. answerer: has `completion` and `chat`, which may raise ValueError for status 400."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": "somebody"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = answerer.chat if self.path.endswith("/chat/completions") else answerer.completion
            try:
                self._send(200, answer(body))
            except ValueError as error:
                self._send(400, {"error": {"message": str(error)}})

        def _send(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(BrokenPipeError):  # a client that has run out of patience
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
