"""The probe's questions: conversations of the demo's generator that right models answer with a wide margin, however they round."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import torch

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Group, Item
from demo_model.dialogues import Conversation, write

from .bugs import BUGS
from .certainty import MARGIN, Jury

CALL_MARGIN, LONGEST_CALL = 0.3, 120  # nats and tokens of a whole answer, which has many of them
SHORTEST = 6  # tokens of an answer that are asked for
SEEDS = 40  # tried for each question
TRIES = 8  # of those that have a wide margin in exact precision: rounding is slow
CHARACTERS_PER_TOKEN = 3.0
# Of the length that is wanted: one of 2300 tokens is longer than what a checkpoint of 2048 selects.
LEAST, MOST = 0.95, 1.6
SHORT = 600  # characters of a conversation before its call
# They change the demo's log-probabilities least of those that change them by more than rounding does: texts were chosen for them.
WEAK = ("dense-attention", "relu-missing", "router-groups-ignored", "router-bias-ignored", "key-norm-rms")


@dataclass(frozen=True)
class Sizes:
    """Tokens of the prompts of each group, about."""

    score: tuple[tuple[int, int], ...]  # and the number of the text, of those that --choose compares
    decode: tuple[int, ...]
    reuse: tuple[int, ...]  # numbers of the `decode` conversations that go on
    batch: tuple[int, ...]
    of_forward_passes: tuple[str, ...]  # the groups that a bug of the forward pass is asked
    has_whole_chats: bool  # with thinking and functions, answered to their end


# The demo selects 128 tokens: below, at and far above that; not at borders of pages, which are 64 tokens.
DEMO = Sizes(
    score=((120, 6), (400, 1), (700, 7), (1000, 4)),
    decode=(120, 180, 250, 450, 650, 900),
    reuse=(3, 5),
    batch=(120, 150, 180, 220, 260, 900),
    of_forward_passes=("score", "decode"),
    has_whole_chats=True,
)
# A checkpoint that selects 2048.
WIDE = Sizes(
    score=((2700, 0),),
    decode=(2300,),
    reuse=(0,),
    batch=(200, 260),
    of_forward_passes=("score",),
    has_whole_chats=False,
)


# A part of the questions, which needs no other one: a group, and the number of the question in it.
Part = tuple[Group, int]


def parts(sizes: Sizes) -> list[Part]:
    """The parts of all questions, the longest first. What reuses a prompt belongs to that prompt's."""
    counts: dict[Group, int] = {
        "chat": 1,
        "decode": len(sizes.decode),
        "batch": len(sizes.batch),
        "score": len(sizes.score),
    }
    return [(group, number) for group, count in counts.items() for number in range(count)]


def in_order(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items of all parts in the order of Group, in which the probe asks them."""
    groups = get_args(Group)
    return tuple(sorted(items, key=lambda item: groups.index(item.group)))


def questions(engines: Jury, sizes: Sizes, part: Part) -> Iterator[Item]:
    """Items without their answers. Each part draws from conversations of its own, so that no prompt begins as another one."""
    group, number = part
    if group == "score":
        length, text_number = sizes.score[number]
        yield Item(f"score-{length}", "score", tuple(text(engines.exact.llm, length, text_number)))
    elif group == "chat":
        yield from _chat(engines) if sizes.has_whole_chats else islice(_chat(engines), 2)
    else:
        length = (sizes.decode if group == "decode" else sizes.batch)[number]
        conversation, turn = _answerable(engines, group, length)
        messages = conversation.messages(until=turn)
        yield _item(engines, f"{group}-{length}", group, messages)
        if group == "decode" and number in sizes.reuse:
            yield _item(engines, f"reuse-{length}-same", "reuse", messages)
            yield _item(
                engines, f"reuse-{length}-longer", "reuse", [*messages, *_going_on(engines, conversation, turn)]
            )


def text(llm: LLM, length: int, number: int) -> list[int]:
    """The first `length` tokens of a conversation, or all of it."""
    conversation = _conversation(f"score {length} {number}", length + 150)
    tokens: list[int] = llm.chat_token_ids(conversation.messages(until=None)[:-1])[:length]
    return tokens


def discrimination(model: Path, of: tuple[int, int]) -> list[float]:
    """The largest change of a log-probability of a text (its length and number) by each of the WEAK bugs, in nats."""
    length, number = of
    llm = LLM(model, device="cpu", precision="exact", max_model_len=4096, page_count=80)
    tokens = text(llm, length, number)

    def logprobs() -> torch.Tensor:
        return llm.logits(tokens)[:-1].log_softmax(-1).gather(1, torch.tensor(tokens)[1:, None])

    right, largest = logprobs(), []
    for name in WEAK:
        with BUGS[name].seed():
            largest.append(float((logprobs() - right).abs().max()))
    return largest


def _conversation(seed: str, length: int, functions: float = 0.0) -> Conversation:
    size = int(length * CHARACTERS_PER_TOKEN)
    return write(f"conformance {seed}", length=size, split="test", wording="train", thinking=0.0, functions=functions)


def _answerable(engines: Jury, group: str, length: int) -> tuple[Conversation, int]:
    """A conversation and the number of a turn, whose prompt is about `length` tokens long and answered with a wide margin.

    However engines round; if TRIES of them are not, the one of these that is for the most tokens.
    """
    found: list[tuple[int, Conversation, int]] = []
    for seed in range(SEEDS):
        conversation = _conversation(f"{group} {length} {seed}", length)
        numbers = [n for n, turn in enumerate(conversation.turns) if turn.kind in ("stated", "updated")]
        if not numbers:
            continue
        tokens = engines.token_ids(conversation.messages(until=numbers[-1]))
        if not LEAST * length <= len(tokens) <= MOST * length or engines.count_margins(tokens) < SHORTEST:
            continue
        found.append((engines.count_certain(tokens), conversation, numbers[-1]))
        if found[-1][0] >= SHORTEST or len(found) == TRIES:
            break
    if not found:
        raise SystemExit(
            f"no conversation of {length} tokens is answered with a margin of {MARGIN}: is the checkpoint trained?"
        )
    return max(found, key=lambda each: each[0])[1:]


def _going_on(engines: Jury, conversation: Conversation, turn: int) -> list[dict[str, Any]]:
    """The right answer to the turn, and another question for what was said before it."""
    asked = conversation.turns[turn]
    answer = {"role": "assistant", "content": asked.assistant}
    before = conversation.messages(until=turn)
    others = [
        each for each in conversation.turns[:turn] if each.kind in ("stated", "updated") and each.user != asked.user
    ]
    for other in reversed(others):
        question = other.user.rsplit("\n", 1)[-1][-200:]
        following = [answer, {"role": "user", "content": question}]
        if engines.count_certain(engines.token_ids([*before, *following])) >= SHORTEST:
            return following
    return [answer, {"role": "user", "content": asked.user.rsplit("\n", 1)[-1][-200:]}]


def _item(
    engines: Jury, name: str, group: Any, messages: list[dict[str, Any]], length: int | None = None, **chat: Any
) -> Item:
    """An item without its answer, which asks for `length` tokens, or for the certain ones."""
    tokens = engines.token_ids(messages, **chat)
    tools = chat.pop("tools", None) or ()
    length = length or max(engines.count_certain(tokens), 1)
    return Item(name, group, tuple(tokens), tuple(messages), tuple(tools), max_tokens=length, **chat)


def _chat(engines: Jury) -> Iterator[Item]:
    """Questions about the chat format: what it writes before the model, and what it reads out of the answer."""
    system = {"role": "system", "content": "Answer from the conversation alone. Say so when you were not told."}
    told = "The gate code is 4815. The ferry to Ostrava leaves at 7:40. My sister Mirela works at the bakery."
    said = {"role": "assistant", "content": "Noted."}
    two_steps = "My landlord is Petra Novak. Petra Novak's phone number is 555-0182."
    thought = {
        "role": "assistant",
        "reasoning_content": "You said: The gate code is 4815.",
        "content": "4815. You said: The gate code is 4815.",
    }
    user = [
        {"role": "user", "content": text}
        for text in (told, "What is the gate code?", "When does the ferry to Ostrava leave?")
    ]
    yield _item(engines, "chat-system", "chat", [system, user[0], said, user[2]])
    yield _item(
        engines, "chat-turns", "chat", [user[0], said, user[1], {**thought, "reasoning_content": None}, user[2]]
    )
    steps = [
        {"role": "user", "content": two_steps},
        said,
        {"role": "user", "content": "What is my landlord's phone number?"},
    ]
    yield _whole(engines, "chat-thinking", steps, thinking=True)
    yield _whole(engines, "chat-history", [user[0], said, user[1], thought, user[2]], thinking=True)
    for seed in range(SEEDS):
        conversation = _conversation(f"functions {seed}", 900, functions=1.0)
        calls = [n for n, turn in enumerate(conversation.turns) if turn.call is not None]
        if not calls or sum(len(turn.user) for turn in conversation.turns[: calls[0]]) > SHORT:
            continue
        turn = conversation.turns[calls[0]]
        assert turn.call is not None
        tools = [function.schema for function in conversation.functions]
        messages = [system, *conversation.messages(until=calls[0])[bool(conversation.system) :]]
        results = [*messages, *turn.call.messages(None)]
        if all(_is_whole(engines, each, tools) for each in (messages, results)):
            yield _whole(engines, "chat-calls", messages, tools=tools)
            yield _whole(engines, "chat-results", results, tools=tools)
            return
    raise SystemExit(f"no call is made with a margin of {CALL_MARGIN}: is the checkpoint trained?")


def _whole(engines: Jury, name: str, messages: list[dict[str, Any]], **chat: Any) -> Item:
    """An item that asks for a whole answer, because it is parsed."""
    length = len(engines.answer(engines.token_ids(messages, **chat), LONGEST_CALL).token_ids)
    return _item(engines, name, "chat", messages, length + 1, **chat)


def _is_whole(engines: Jury, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> bool:
    """Tell whether the whole answer has a wide margin."""
    tokens = engines.token_ids(messages, tools=tools)
    completion = engines.answer(tokens, LONGEST_CALL)
    certain = engines.count_margins(tokens, LONGEST_CALL, CALL_MARGIN)
    return completion.finish_reason == "stop" and certain == len(completion.token_ids)
