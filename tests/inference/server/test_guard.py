"""The guard before all routes: who may use the server, and how much they may send."""

import base64
import gzip
import importlib.util
import zlib

import httpx
import pytest

from deepseek_v32.inference.server.api import guard
from deepseek_v32.inference.server.api.guard import host_name, is_loopback
from deepseek_v32.inference.server.app import host_names
from deepseek_v32.inference.server.service.service import Service
from support.raw_http import ask, connect
from support.server import serving, stand_in_llm

KEY = "correct horse battery"


@pytest.fixture(scope="module")
def locked():
    """A server with a key, and with the chat if gradio is installed."""
    chat = importlib.util.find_spec("gradio") is not None
    with serving(Service(stand_in_llm()), api_key=KEY, chat=chat) as server:
        yield server


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]", "[::1]:80"])
def test_names_of_this_server_are_allowed(http, host):
    assert http.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.", "", "::1"]
)
def test_other_names_are_refused(http, host):
    refused = http.get("/health", headers={"host": host})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "host")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1.evil.example"]
)
def test_requests_of_other_sites_are_refused(server, http, origin):
    refused = http.post("/v1/completions", json={"prompt": "a"}, headers={"origin": origin})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin")
    assert http.get("/health", headers={"origin": server.url}).status_code == 200


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://[x]", "//[", "http://a\u2100b".encode()])
def test_origins_that_are_no_addresses_are_malformed(server, http, origin):
    refused = http.post("/v1/completions", json={"prompt": "a"}, headers={"origin": origin})
    assert refused.status_code in (400, 403) and refused.json()["error"]["code"] == "origin"
    assert refused.status_code == 400 or isinstance(origin, bytes)


def test_every_route_but_the_probes_wants_the_key(locked):
    routes = [
        ("GET", "/"),
        ("GET", "/nothing"),
        ("POST", "/gradio_api/call/x"),
        ("GET", "/gradio_api/file=/etc/passwd"),
    ]
    routes += [(method, path) for path, methods in openapi(locked)["paths"].items() for method in methods]
    assert len(routes) > 12
    for method, path in routes:
        if path in ("/health", "/ready"):
            assert httpx.get(locked.url + path).status_code == 200
            continue
        refused = httpx.request(method, locked.url + path, json={} if method == "post" else None)
        name, kind = ("type", "authentication_error") if "/messages" in path else ("code", "invalid_api_key")
        assert (refused.status_code, refused.json()["error"][name]) == (401, kind), path
        assert "Basic" in refused.headers["www-authenticate"]


def openapi(server):
    return httpx.get(server.url + "/openapi.json", headers={"authorization": f"Bearer {KEY}"}).json()


def basic(text: bytes) -> str:
    return "Basic " + base64.b64encode(text).decode()


def test_the_key_in_its_two_forms(locked):
    for given in (f"Bearer {KEY}", f"bearer {KEY}", basic(f"anyone:{KEY}".encode()), basic(f":{KEY}".encode())):
        assert httpx.get(locked.url + "/metrics", headers={"authorization": given}).status_code == 200
    for given in ("", "Bearer", f"Bearer {KEY}x", KEY, basic(KEY.encode()), basic(b"x:\xff"), "Basic !", "Bearer \xe9"):
        headers = {"authorization": given.encode("latin-1")}
        assert httpx.get(locked.url + "/metrics", headers=headers).status_code == 401
    assert openapi(locked)["security"] == [{"key": []}]


def test_no_file_is_served(locked):
    headers = {"authorization": f"Bearer {KEY}"}
    for path in (
        "/gradio_api/file=/etc/passwd",
        "/file=/etc/passwd",
        "/gradio_api/file=pyproject.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
    ):
        response = httpx.get(locked.url + path, headers=headers)
        assert "root:" not in response.text and "[project]" not in response.text


def test_bodies_have_a_limit(http):
    large = b'{"prompt": "' + b"a" * guard.MAX_BODY + b'"}'
    headers = {"content-type": "application/json"}

    def chunked():
        for start in range(0, len(large), 2**20):
            yield large[start : start + 2**20]

    for content in (large, chunked()):
        try:
            refused = http.post("/tokenize", content=content, headers=headers)
        # The server may disconnect before it has read everything.
        except httpx.WriteError:
            continue
        assert refused.status_code == 413 and refused.json()["error"]["type"] == "invalid_request_error"
    assert http.get("/health").status_code == 200


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


BODY = b'{"prompt": "' + b"a b c " * 100 + b'"}'


@pytest.mark.parametrize(
    ("coding", "sent", "status"),
    [
        ("gzip", gzipped(BODY), 200),
        ("GZIP", gzipped(BODY), 200),
        ("deflate", zlib.compress(BODY), 200),
        ("identity", BODY, 200),
        ("br", BODY, 415),
        ("zstd", BODY, 415),
        ("gzip, gzip", gzipped(gzipped(BODY)), 415),
        ("\xff", BODY, 415),
        ("gzip", BODY, 400),
        ("gzip", b"", 400),
        ("gzip", gzipped(BODY)[:-9], 400),
        ("gzip", gzipped(BODY) + b"more", 400),
        ("gzip", gzipped(bytes(100 * 2**20)), 413),
        ("gzip", gzipped(gzipped(bytes(100 * 2**20))), 400),
        ("gzip", gzipped(b'{"prompt": "' + b"a" * guard.MAX_BODY + b'"}'), 413),
        ("gzip", gzipped(b"[" + b"[],[]," * 500_000 + b"[]]"), 413),
    ],
    ids=range(16),
)
def test_compressed_bodies(http, coding, sent, status):
    def parts(size):
        for start in range(0, len(sent), size):
            yield sent[start : start + size]

    headers = {"content-type": "application/json", "content-encoding": coding.encode("latin-1")}
    for content in (sent, parts(97) if len(sent) < 20_000 else parts(60_000)):
        answer = http.post("/tokenize", content=content, headers=headers)
        assert answer.status_code == status, answer.text
        if status == 200:
            assert (
                answer.json()
                == http.post("/tokenize", content=BODY, headers={"content-type": "application/json"}).json()
            )
        elif status == 415:
            assert "Content-Encoding" in answer.json()["error"]["message"]


def test_probes(locked, http):
    """Kubernetes and load balancers ask by address, without a key, some with HEAD."""
    for path in ("/health", "/ready"):
        for host in ("10.0.0.7:8000", "10.0.0.7", "[fd00::7]:8000"):
            assert httpx.get(locked.url + path, headers={"host": host}).status_code == 200
            head = httpx.head(locked.url + path, headers={"host": host})
            assert head.status_code == 200 and not head.content and int(head.headers["content-length"]) > 10
        assert httpx.head(locked.url + path, headers={"host": "evil.example"}).status_code == 403
    for path in ("/version", "/metrics", "/v1/models"):
        assert http.get(path, headers={"host": "10.0.0.7"}).status_code == 403
    assert http.head("/health", headers={"origin": "http://evil.example", "host": "10.0.0.7"}).status_code == 403


def test_other_sites_may_delete():
    with serving(Service(stand_in_llm()), origins=["http://page.example"]) as server:
        asks = {"origin": "http://page.example", "access-control-request-method": "DELETE"}
        allowed = httpx.options(server.url + "/v1/responses/resp_1", headers=asks)
        assert allowed.status_code == 200 and "DELETE" in allowed.headers["access-control-allow-methods"]


def test_a_slow_body_does_not_wait_for_ever(server, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50"
    with connect(server.url) as connection:
        connection.sendall(head + b"\r\n\r\n{")
        assert b" 408 " in connection.recv(65536).split(b"\r\n")[0]


def test_headers_have_a_limit(server, http):
    assert http.get("/health", headers={"x-long": "a" * 20_000}).status_code == 431
    answer = ask(server.url, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000)
    assert not answer.received or answer.status in (400, 431)
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("head", [
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
    b"GET /health HTTP/1.1",
    b"\x16\x03\x01\x02\x00",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example",
    b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
    b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://evil.example",
], ids=range(7))  # fmt: skip
def test_odd_heads(server, http, head):
    answer = ask(server.url, head + b"\r\nConnection: close\r\n\r\n")
    assert answer.status // 100 == 4, answer
    assert http.get("/health").status_code == 200


def test_a_request_as_to_a_proxy(server):
    """RFC 9112, 3.2.2: its target is a whole URL, whose host counts."""
    for target, status in (
        ("http://localhost:1/health", 200),
        ("HTTP://127.0.0.1", 404),
        ("http://evil.example/health", 403),
    ):
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert ask(server.url, head.encode()).status == status, target


def test_browsers_are_told_not_to_guess(http):
    headers = http.get("/health").headers
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "server" not in headers


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.0.5", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_addresses(address, loopback):
    assert is_loopback(address) is loopback


def test_which_names_a_server_answers_to():
    assert host_names("127.0.0.1", [])[-1] == "127.0.0.1"
    assert host_names("0.0.0.0", []) == ["*"]
    assert "chat.example" in host_names("0.0.0.0", ["chat.example"]) and "*" not in host_names(
        "0.0.0.0", ["chat.example"]
    )
    assert "[fe80::1]" in host_names("fe80::1", [])
    assert [host_name(host) for host in ("a:1", "A", "[::1]:5", "[::1]", "")] == ["a", "a", "[::1]", "[::1]", ""]
