"""Free answers through the chat interface: thoughts of two steps, calls of functions, and answers from their results."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.text.answer import AssistantMessage, parse_assistant
from deepseek_v32.inference.text.dsml import call_pieces
from deepseek_v32.inference.text.tokenizer import EOS
from deepseek_v32.inference.text.tool_arguments import parameters
from demo_model.dialogues import Conversation, Turn, write

GREEDY = SamplingParams(temperature=0, max_tokens=400)  # two calls with long arguments have about 200


@dataclass(frozen=True)
class ChatCell:
    """Conversations of about `characters`, in which all turns of these kinds are asked anew."""

    characters: int
    kinds: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()  # of `write`

    def conversation(self, seed: str) -> Conversation:
        options = {"split": "test", "wording": "train", **dict(self.options)}
        return write(f"{seed} {self.kinds}", length=self.characters, **options)


CHAT_CELLS = {
    "1K chat": ChatCell(2_700, ("stated", "updated", "unanswerable")),
    "4K chat": ChatCell(11_000, ("stated", "updated", "unanswerable")),
    "4K two hops": ChatCell(11_000, ("two hops",), (("thinking", 1.0), ("functions", 0.0))),
    "4K functions": ChatCell(11_000, ("call",), (("functions", 1.0),)),
}


@dataclass(frozen=True)
class Asked:
    """One question: its prompt, and what is expected."""

    kind: str
    turn: Turn
    thinking: bool
    tools: list[dict[str, Any]]
    prompt: list[int]


def questions(llm: LLM, cell: ChatCell, conversation: Conversation) -> list[Asked]:
    """The turns of these kinds, and of the other kinds with functions in sight, those that want no call."""
    tools = [function.schema for function in conversation.functions]
    asked = []
    for number, turn in enumerate(conversation.turns):
        messages = conversation.messages(until=number)
        thinking = turn.thought is not None
        if turn.kind in cell.kinds or (tools and turn.kind in ("stated", "updated")):
            kind = turn.kind if turn.kind in cell.kinds else "no call"
            asked.append(Asked(kind, turn, thinking, tools, llm.chat_token_ids(messages, thinking, tools)))
        if turn.call is not None and turn.kind in cell.kinds:
            thinking = turn.call.thought is not None
            messages += turn.call.messages()
            asked.append(Asked("result", turn, thinking, tools, llm.chat_token_ids(messages, thinking, tools)))
    return asked


def judged(asked: Asked, text: str) -> dict[str, bool]:
    """What holds of an answer: that it is right, and of calls also that they are well formed."""
    message = parse_assistant(text, asked.thinking, asked.tools)
    if asked.kind == "call":
        assert asked.turn.call is not None
        return {"well formed": _well_formed(message, text), "right": _calls(message) == _json(asked.turn.call.calls)}
    if asked.kind == "no call":
        return {"right": not message.tool_calls}
    expected = asked.turn.answer if asked.turn.call is None else asked.turn.call.answer
    whole = "".join(part for part, _ in expected)
    value = asked.turn.value if asked.turn.call is None else expected[0][0]
    return {
        "right": not message.tool_calls and message.content.strip().startswith(value.strip()),
        "whole": message.content.strip() == whole.strip(),
    }


def _json(calls: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The calls with lists where the generator has tuples."""
    return [(name, json.loads(json.dumps(arguments))) for name, arguments in calls]


def _calls(message: AssistantMessage) -> list[tuple[str, Any]]:
    try:
        return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    except ValueError:
        return []


def _well_formed(message: AssistantMessage, text: str) -> bool:
    """Whether the text is a block of calls, character for character as the format has it: nothing had to be recovered."""
    if not message.tool_calls:
        return False
    pieces = call_pieces([(name, parameters(json.dumps(given)) or []) for name, given in _calls(message)])
    written = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    return text.removesuffix(EOS).endswith(f"\n\n{written}") and not message.content.strip()


def run_chat(llm: LLM, cell: ChatCell, count: int, seed: str) -> dict[str, Any]:
    """Percentages of what holds of the answers, by kind of turn, over `count` conversations."""
    asked: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for number in range(count):
        found = questions(llm, cell, cell.conversation(f"{seed} {number}"))
        for each, completion in zip(found, llm.generate([e.prompt for e in found], GREEDY), strict=True):
            asked[each.kind] += 1
            for name, holds in judged(each, completion.text).items():
                held[f"{each.kind}, {name}"] += holds
                asked[f"{each.kind}, {name}"] += 1
    kinds = [name for name in asked if ", " not in name]
    shares = {name: round(100 * held[name] / asked[name], 2) for name in sorted(asked) if ", " in name}
    return shares | {"questions": {kind: asked[kind] for kind in kinds}, "conversations": count}
