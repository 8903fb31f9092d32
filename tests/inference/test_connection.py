"""Only a rank that has the store's token may connect to rank 0."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from deepseek_v32.inference.distributed import connection
from deepseek_v32.inference.distributed.channel import Channel, MessageKind
from deepseek_v32.inference.distributed.connection import accept_ranks, connect_to_rank_0

KEY = "deepseek-v32/rank-0"


class Store:
    """torch's, of one process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._there = threading.Event()

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()
        self._there.set()

    def get(self, key: str) -> bytes:
        assert self._there.wait(10)
        return self.values[key]


@pytest.fixture(params=[None, "127.0.0.1"], ids=["one machine", "several"])
def host(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait, so that a failing test does not wait for ranks that never come."""
    monkeypatch.setattr(connection, "START_SECONDS", 5.0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def close_all(accepted: "Future[dict[int, Channel]]", *own: Channel) -> None:
    for channel in (*accepted.result(10).values(), *own):
        channel.close()


def test_channels_connect_the_ranks_in_any_order(host: str | None, pool: ThreadPoolExecutor) -> None:
    store = Store()
    accepted = pool.submit(accept_ranks, store, 4, host)
    own = {rank: connect_to_rank_0(store, rank) for rank in (3, 1, 2)}
    for rank, channel in accepted.result(10).items():
        channel.send(MessageKind.LOAD, {"to": rank})
        assert own[rank].receive().values == {"to": rank}
    close_all(accepted, *own.values())


def connect(store: Store) -> socket.socket:
    address, _ = json.loads(store.get(KEY))
    if isinstance(address, str):
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect(address)
        return stranger
    return socket.create_connection(tuple(address))


def test_strangers_are_turned_away_and_the_ranks_still_connect(
    host: str | None, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TOKEN_SECONDS", 1.0)  # of the silent one; the rank itself needs a moment, too
    store = Store()
    accepted = pool.submit(accept_ranks, store, 2, host)
    _, token = json.loads(store.get(KEY))
    wrong = bytes(byte ^ 1 for byte in bytes.fromhex(token))
    with closing(connect(store)) as liar, closing(connect(store)) as leaver, closing(connect(store)) as silent:
        liar.sendall(wrong + b"\xff" * 16)  # then the sizes of an enormous message
        leaver.shutdown(socket.SHUT_WR)
        own = connect_to_rank_0(store, 1)
        assert list(accepted.result(10)) == [1]
        for stranger in (liar, leaver, silent):
            stranger.settimeout(5)
            with suppress(ConnectionResetError):  # what it has sent was not read
                assert stranger.recv(1) == b""
    close_all(accepted, own)


def test_nothing_but_the_given_address_is_listened_on(pool: ThreadPoolExecutor) -> None:
    store = Store()
    accepted = pool.submit(accept_ranks, store, 2, "127.0.0.1")
    (address, port), _ = json.loads(store.get(KEY))
    assert address == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)  # the machine's, too
    close_all(accepted, connect_to_rank_0(store, 1))


def test_ranks_that_do_not_come_and_a_rank_0_that_is_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connection, "START_SECONDS", 0.05)
    with pytest.raises(ValueError, match=r"ranks \[1, 2\] have not connected within 0 s; expected all 3 ranks"):
        accept_ranks(Store(), 3, "127.0.0.1")
    store = Store()
    store.set(KEY, json.dumps([["127.0.0.1", 9], "00"]))
    with pytest.raises(ValueError, match=r"rank 2 cannot reach rank 0 at \['127.0.0.1', 9\].*; expected MASTER_ADDR"):
        connect_to_rank_0(store, 2)
