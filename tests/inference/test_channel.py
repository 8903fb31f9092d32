"""Messages between ranks, and the one line that describes an error to the user."""

import socket

import numpy as np
import pytest

from deepseek_v32.inference.distributed.channel import Channel, MessageKind, pack
from deepseek_v32.inference.text.errors import describe_error


@pytest.fixture
def ends():
    """The two ends of a channel."""
    channels = [Channel(each) for each in socket.socketpair()]
    yield channels
    for channel in channels:
        channel.close()


def test_messages_arrive_as_they_were_sent(ends) -> None:
    """Values and arrays, an empty one and one that is not contiguous among them; then a message without either."""
    sender, receiver = ends
    arrays = [np.arange(6).reshape(2, 3).T, np.array([], dtype=np.int64), np.array([1.5, -2.0], dtype=np.float32)]
    sender.send_packed(pack(MessageKind.STEP, {"decodes": np.int64(2), "inspect": False}, arrays))
    sender.send(MessageKind.END)
    kind, values, received = receiver.receive()
    assert kind is MessageKind.STEP and values == {"decodes": 2, "inspect": False}
    for array, copy in zip(arrays, received, strict=True):
        assert array.dtype == copy.dtype and np.array_equal(array, copy)
    assert receiver.receive() == (MessageKind.END, {}, [])


def test_a_closed_end_is_reported(ends) -> None:
    """A closed end is also reported in the middle of a message, whose rest never comes."""
    sender, receiver = ends
    sender.send_packed(pack(MessageKind.REPLY, {"pages": 7})[:-1])
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("page_count is 0;\n expected at least 1"), "page_count is 0; expected at least 1"),
        (FileNotFoundError(2, "No such file or directory", "a.json"), "a.json: No such file or directory"),
        (BrokenPipeError("the reader has left"), "the reader has left"),
        (RuntimeError("the cable\nis broken"), "RuntimeError: the cable is broken"),
        (TimeoutError(), "TimeoutError"),
    ],
    ids=["value", "file", "system", "other", "without a text"],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    assert describe_error(error) == line
