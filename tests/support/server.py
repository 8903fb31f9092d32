"""A server to test: uvicorn in a thread, on a free port, with a small stand-in model."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.chat_app.mount import mount_chat
from deepseek_v32.inference.server.api.connections import ConnectionLimits
from deepseek_v32.inference.server.api.http_server import make_server
from deepseek_v32.inference.server.app import create_app
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.server.service.streams import AsyncStream
from deepseek_v32.inference.text.tokenizer import Special
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import AttentionMetadata, LayerCache
from support.fake_model import fake_config
from support.tokenizers import make_tokenizer

MODEL = "stand-in"


class Talker:
    """A model that generates a script after a prompt of a given length, and otherwise noise, which depends on the last token and
    its position. `before_step` may wait or raise.
    """

    def __init__(self, config: ModelConfig, eos: int) -> None:
        self.eos = eos
        self.before_step: Callable[[], None] = lambda: None
        self._script: list[int] = []
        self._start = 0
        generator = torch.Generator().manual_seed(0)
        self._noise = torch.randn(config.vocab_size, config.vocab_size, generator=generator)
        # Noise never ends by itself.
        self._noise[:, eos] = -100

    def forget(self) -> None:
        self._script, self.before_step = [], lambda: None

    def say(self, tokens: Sequence[int], prompt_length: int) -> None:
        self._script, self._start = [*tokens, self.eos], prompt_length

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata, caches: list[LayerCache]
    ) -> torch.Tensor:
        self.before_step()
        rows = metadata.logit_rows
        logits = self._noise[(tokens[rows] + 7 * positions[rows]) % len(self._noise)].clone()
        for row, position in enumerate(positions[rows].tolist()):
            index = position + 1 - self._start
            if 0 <= index < len(self._script):
                logits[row, self._script[index]] = 100
        return logits


@dataclass
class Running:
    """A running server."""

    url: str
    service: Service
    model: Talker = field(repr=False)

    @property
    def llm(self) -> LLM:
        return self.service.llm

    def say(self, pieces: Sequence[str | Special], messages: list[dict], **chat: Any) -> None:
        """Make the model answer this conversation with these pieces."""
        assert self.llm.tokenizer is not None
        tokens = self.llm.tokenizer.encode_pieces(pieces)
        self.model.say(tokens, len(self.llm.chat_token_ids(messages, **chat)))

    def idle(self, seconds: float = 30.0) -> bool:
        """Wait until no request is open and no page is in use; whether that happened in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stats = self.service.stats()
            if stats.open == 0 and stats.engine.pages_used == 0:
                return True
            time.sleep(0.005)
        return False


def stand_in_llm(chat_template: str | None = None, **limits: Any) -> LLM:
    """An LLM of a Talker, which is `llm.model`, with a real tokenizer."""
    tokenizer = make_tokenizer(chat_template)
    eos = tokenizer.eos_ids[0]
    config = fake_config(vocab_size=tokenizer.vocab_size, eos_token_ids=(eos,))
    return LLM.from_model(Talker(config, eos), config, tokenizer, **{"page_count": 64, "max_model_len": 1024, **limits})


@contextmanager
def serving(
    service: Service, *, drain: float = 1, limits: ConnectionLimits | None = None, chat: bool = False, **options: Any
) -> Iterator[Running]:
    """Run create_app(service, **options) as `deepseek-v32 serve` does. chat: with its page."""
    page = {"mount_page": mount_chat} if chat else {}
    app = create_app(service, **{"model_name": MODEL, **page, **options})
    server = make_server(app, "127.0.0.1", 0, drain=drain, limits=limits)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server has ended"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        # A Talker, or a real model in tests that need no script.
        model: Any = service.llm.model
        yield Running(f"http://127.0.0.1:{port}", service, model)
    finally:
        server.should_exit = True
        thread.join()


async def submit(service: Service, prompt: list[int], params: SamplingParams) -> AsyncStream:
    """Queue one prompt of token ids."""
    [stream] = await service.submit_many([service.requests.from_tokens(prompt, params)])
    return stream
