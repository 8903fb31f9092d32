"""Asks a server the probe's questions. verdict.py says what its answers mean."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from .golden import Item
from .probe_client import Client, ProbeError, Refused
from .probe_reply import Reply

Progress = Callable[[str], None]


@dataclass
class Observation:
    """What a server has said."""

    model: str
    replies: dict[str, Reply] = field(default_factory=dict)  # by item
    refusals: dict[str, str] = field(default_factory=dict)  # by item that got no answer: the server's reason
    takes_token_ids: bool = True
    scores_prompts: bool = True
    gives_logprobs: bool = True
    repeats: bool | None = None  # whether the same greedy request got the same answer, bit for bit; None: not known


class Probe:
    """Asks the items one after the other, those of the group `batch` all at once."""

    def __init__(self, client: Client, progress: Progress = lambda name: None) -> None:
        self.client = client
        self.progress = progress
        self.seen = Observation(client.model)

    def run(self, items: Iterable[Item]) -> Observation:
        """ProbeError if the server stops to answer, or answers no question at all."""
        items = list(items)
        self._find_out(next((item for item in items if item.group in ("decode", "reuse")), None))
        together = [item for item in items if item.group == "batch"]
        for item in items:
            if item.group != "batch":
                self._note(item, self._ask(item))
        if together:
            with ThreadPoolExecutor(len(together) + 1) as pool:
                # One of them twice: a server whose bits depend on the batch may answer its twins differently.
                asked = [(item, pool.submit(self._ask, item)) for item in (*together, together[0])]
                answers = [(item, future.result()) for item, future in asked]
            for item, answer in answers[:-1]:
                self._note(item, answer)
            self._compare(answers[0][1], answers[-1][1])
        if not self.seen.replies:
            reason = next(iter(self.seen.refusals.values()), "there is nothing to ask")
            raise ProbeError(f"the server has answered no question; expected answers, but got {reason}")
        self.seen.scores_prompts &= any(
            self.seen.replies[item.name].logprobs
            for item in items
            if item.group == "score" and item.name in self.seen.replies
        )
        return self.seen

    def _find_out(self, item: Item | None) -> None:
        """What the server takes and gives, learned from one short prompt, which no item begins with."""
        if item is None:
            return
        short = item.tokens[1:9]
        try:
            reply = self.client.complete(short, 1)
            self.seen.gives_logprobs = bool(reply.logprobs)
            self.seen.takes_token_ids = reply.prompt_tokens is None or abs(reply.prompt_tokens - len(short)) <= 1
        except Refused:
            try:
                self.client.complete(short, 1, with_logprobs=False)
                self.seen.gives_logprobs = False
            except Refused:
                self.seen.takes_token_ids = False
        if not self.seen.takes_token_ids:
            self.seen.scores_prompts = False
            try:
                reply = self.client.chat([{"role": "user", "content": "Hi"}], 1)
                self.seen.gives_logprobs = bool(reply.logprobs)
            except Refused:
                self.seen.gives_logprobs = False

    def _ask(self, item: Item) -> Reply | str:
        """The reply, or why there is none."""
        self.progress(item.name)
        seen, client = self.seen, self.client
        try:
            if item.group == "score":
                return client.score(item.tokens) if seen.scores_prompts else "the server scores no prompts"
            if seen.takes_token_ids and item.group != "chat":
                return client.complete(item.tokens, item.max_tokens, seen.gives_logprobs)
            return client.chat(item.messages, item.max_tokens, item.thinking, item.tools, seen.gives_logprobs)
        except Refused as error:
            return str(error)

    def _note(self, item: Item, answer: Reply | str) -> None:
        if isinstance(answer, str):
            self.seen.refusals[item.name] = answer
        else:
            self.seen.replies[item.name] = answer

    def _compare(self, one: Reply | str, other: Reply | str) -> None:
        if isinstance(one, Reply) and isinstance(other, Reply):
            self.seen.repeats = [one.text, one.logprobs] == [other.text, other.logprobs]


def observation_json(seen: Observation) -> str:
    """An observation as JSON text, to keep it for a report."""
    return json.dumps(vars(seen), default=vars, ensure_ascii=False)
