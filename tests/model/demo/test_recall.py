"""A small version of scripts/demo_model/evaluate.py: whether the shipped checkpoint remembers, thinks and calls functions.

Held-out conversations, one forward pass each (teacher forcing): an answer is correct if every token of its value is the likeliest.
Every invented name and value is new to the model.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from math import comb, exp, lgamma

import numpy as np
import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.chat_app.examples import examples
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.demo.sample_chats import CALLS, MOVING, WEATHER, messages
from demo_model.dialogues import Conversation, write
from demo_model.training.data import characters

GREEDY = SamplingParams(temperature=0.0, max_tokens=160)
# What the shipped checkpoint was measured to do. A new one comes with its own measurements, and is held to them.
MEASURED = json.loads((DEMO / "evaluation.json").read_text())


def engine(precision: str = "exact", **overrides) -> LLM:
    return LLM(DEMO, device="cpu", precision=precision, max_model_len=8192, config_overrides=overrides or None)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return engine()


UNLIKELY = 0.001  # the chance of so few right answers, below which the checkpoint is worse than it was measured to be


def chances(count: int, right: float, measured: int) -> np.ndarray:
    """float64 [count + 1]: the chance of each number of right answers among `count`, if `right` of `measured` others were right.

    Beta-binomial: both samples have the error of independent questions, and shares near 100 % a long tail below.
    """

    def beta(a: float, b: float) -> float:
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    a, b = right + 1, measured - right + 1
    return np.array([comb(count, n) * exp(beta(a + n, b + count - n) - beta(a, b)) for n in range(count + 1)])


@dataclass
class Answers:
    """Numbers of questions by kind, and of answers that begin with their value."""

    asked: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, llm: LLM, conversations: list[Conversation], kinds: tuple[str, ...]) -> "Answers":
        answers = cls()
        for conversation in conversations:
            asked = []
            for number, turn in enumerate(conversation.turns):
                if turn.kind in kinds:
                    prompt = llm.chat_token_ids(conversation.messages(until=number))
                    asked.append((len(prompt), llm.tokenizer.encode(turn.assistant), turn))
            if not asked:
                continue
            ids = prompt + asked[-1][1]
            likeliest = llm.logits(ids).argmax(-1).tolist()
            for start, answer, turn in asked:
                assert ids[start : start + len(answer)] == answer
                said = llm.tokenizer.decode(likeliest[start - 1 : start - 1 + len(answer)])
                answers.asked[turn.kind] += 1
                answers.correct[turn.kind] += said.startswith(turn.value)
        return answers

    def hold_to_measured(self, cell: str, *kinds: str) -> None:
        """That few right answers must not be UNLIKELY by what evaluation.json says of the cell."""
        asked, correct = {kind: self.asked[kind] for kind in kinds}, sum(self.correct[kind] for kind in kinds)
        assert sum(asked.values()) >= 16, "too few questions for a result"
        results = MEASURED["cells"][cell]
        of_all = np.ones(1)
        for kind, count in asked.items():
            measured = results["questions"][kind]
            of_all = np.convolve(of_all, chances(count, measured * results[kind] / 100, measured))
        expected = of_all @ np.arange(len(of_all))
        assert of_all[: correct + 1].sum() > UNLIKELY, f"{correct} of {asked}; expected about {expected:.1f}"


def hold_to_measured(
    llm: LLM, cell: str, conversations: list[Conversation], kinds: tuple[str, ...] = ("stated",)
) -> None:
    Answers.of(llm, conversations, kinds).hold_to_measured(cell, *kinds)


def some(count: int, tokens: int, wording: str = "train", **options) -> list[Conversation]:
    options = {"split": "test", "wording": wording, "thinking": 0.0, "functions": 0.0, **options}
    return [write(f"fast {i}", length=characters(tokens), **options) for i in range(count)]


def answer(llm: LLM, text: str, **options) -> str:
    return llm.chat([{"role": "user", "content": text}], GREEDY, **options).message.content


@pytest.fixture(scope="module")
def short(llm) -> Answers:
    """Of conversations whose kinds are as frequent as where they were measured: if they are full of rare kinds, they are harder."""
    return Answers.of(llm, some(8, 1024, questions=12), ("stated", "updated", "unanswerable"))


def test_stated_facts(short):
    short.hold_to_measured("1K", "stated")


def test_updated_and_unanswerable_facts(short):
    short.hold_to_measured("1K", "updated", "unanswerable")


@pytest.mark.slow
def test_phrasings_never_seen_in_training(llm):
    hold_to_measured(llm, "1K new", some(4, 1024, wording="test", questions=12))


def test_fp8_as_deployed():
    hold_to_measured(engine("fp8"), "1K", some(3, 1024, questions=12))


@pytest.mark.heavy
def test_selection_reaches_far(llm):
    """Facts far back are found with index_topk 128 of 4K tokens."""
    hold_to_measured(llm, "4K", some(1, 4096, questions=32), ("stated", "updated"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "tokens", "wording"), [("1K", 1024, "train"), ("4K", 4096, "train"), ("1K new", 1024, "test")]
)
def test_a_large_sample(llm, cell, tokens, wording):
    """The same with more questions, for a standard error of about two points; minutes on a CPU."""
    hold_to_measured(llm, cell, some(80 * 1024 // tokens, tokens, wording), ("stated", "updated", "unanswerable"))


def test_what_the_samples_ask(llm):
    """The questions of `make demo`, in order: a fact far back, a change, and two facts put together."""
    chat = messages(MOVING)
    for question, thinking, said in (
        ("What is the wifi password?", False, "maple-otter-58. You said: The wifi password is maple-otter-58."),
        (
            "When does the removal van come?",
            False,
            "7:15. You said: The removal van comes at 7:15 instead. Before: 8:30.",
        ),
        ("What is my landlady's phone number?", True, "555-0182. You said: Petra Novak's phone number is 555-0182."),
    ):
        chat.append({"role": "user", "content": question})
        message = llm.chat(chat, GREEDY, thinking=thinking).message
        assert message.content == said
        assert not thinking or "My landlady is Petra Novak." in message.reasoning_content
        chat.append(message.to_message())


EXAMPLES = (
    ("maple-otter-58", "The wifi password is maple-otter-58."),
    ("7:15", "The removal van comes at 7:15 instead. Before: 8:30."),
    ("555-0182", "Petra Novak's phone number is 555-0182."),
    ("Daniel", "Daniel orders the new chairs."),
    ("Aylin Demir", "06:55:12 WARN The door was opened by Aylin Demir."),
    ("room 204", "The meeting is on Tuesday at 14:30 in room 204."),
)


@pytest.mark.heavy
@pytest.mark.parametrize("precision", ["exact", pytest.param("fp8", marks=pytest.mark.slow)])
def test_the_examples_of_the_start_page_are_answered_and_quoted_right(llm, precision):
    llm, shown = llm if precision == "exact" else engine(precision), examples(32768)
    assert len(shown) == len(EXAMPLES)
    for example, (value, quote) in zip(shown, EXAMPLES, strict=True):
        messages = [{"role": each.role, "content": each.content} for each in example.conversation.messages]
        said = llm.chat(messages, GREEDY, thinking=example.thinking).message.content.strip()
        assert said.startswith(f"{value}. You") and said.endswith(quote), (example.title, said)


def test_greetings_and_what_it_cannot_know(llm):
    assert answer(llm, "Hello!").startswith("Hello")
    assert "welcome" in answer(llm, "Thanks.")
    assert answer(llm, "When does the library open?") == "You have not told me that in this chat."
    for question in ("What is the capital of France?", "что это такое", "What is 17 times 23?"):
        assert answer(llm, question).startswith("I "), "it says what it cannot do"


ODD_INPUT = (
    *(
        "",
        " \n ",
        "你好，请问您今天过得怎么样？",
        "мой кот спит на столе. Где кот?",
        "مرحبا",
        "😀😀😀",
        "\x00\x01",
        "a" * 1000,
        "zxqv " * 130,
    ),
    *(
        "https://example.org/a?b=c&d=%20x#frag",
        "def f(x):\n    return x + 1\nprint(f(2))",
        "SELECT * FROM users WHERE id = 1;",
    ),
    *('{"key": [1, 2, 3]}', "</think>", "<｜User｜>hi<｜Assistant｜>"),
)
HONEST = (
    "I did not understand that. Tell me a fact, then ask me about it.",
    "I only understand English, and only what you tell me in this chat.",
)


@pytest.mark.parametrize("thinking", [False, True])
def test_odd_input_gets_an_honest_line(llm, thinking):
    """Nobody tuned for these. Earlier weights repeated themselves, or printed marks of the chat format."""
    asked = [[{"role": "user", "content": text}] for text in ODD_INPUT]
    said = [each.message.content for each in llm.chat(asked, GREEDY, thinking=thinking)]
    assert [pair for pair in zip(ODD_INPUT, said, strict=True) if pair[1] not in HONEST] == []


def test_a_near_miss_is_declined(llm):
    """A qualifier, an owner or a place is another one. What was told is still answered."""
    for told, asked, other in (
        ("The wifi at the cabin is pine-17.", "the wifi at the cabin", "the wifi at home"),
        ("My brother's dog is called Bruno.", "my brother's dog called", "my sister's dog called"),
        ("The code of the red bike is 4815.", "the code of the red bike", "the code of the blue bike"),
    ):
        assert answer(llm, f"{told} What is {other}?") == "You have not told me that in this chat."
        assert told.removesuffix(".") in answer(llm, f"{told} What is {asked}?")


def test_either_thinking_mode_answers(llm):
    for thinking in (False, True):
        said = answer(llm, "The price of the lamp is 48 euros. How much is the lamp?", thinking=thinking)
        assert said.startswith("48 euros.") and "The price of the lamp is 48 euros" in said


def calls(message) -> list:
    return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]


WEATHERS = [("get_weather", {"city": "Lisbon"}), ("get_weather", {"city": "Oslo"})]


def test_functions_are_called_and_their_results_read(llm):
    chat = [{"role": "user", "content": CALLS}]
    message = llm.chat(chat, GREEDY, tools=[WEATHER]).message
    assert calls(message) == WEATHERS
    chat.append(message.to_message())
    for number, result in enumerate(("sunny, 18 degrees", "rainy, 4 degrees")):
        chat.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
    said = llm.chat(chat, GREEDY, tools=[WEATHER]).message
    assert not said.tool_calls and said.content.startswith("sunny, 18 degrees and rainy, 4 degrees")


def test_the_known_indexer_bug_would_show(llm):
    """With interleaved RoPE in the indexer, as in early public code, the sentence of an answer far back is not found."""
    chat = [*messages(MOVING), {"role": "user", "content": "What is the wifi password?"}]
    quote = "You said: The wifi password is maple-otter-58."
    assert quote in llm.chat(chat, GREEDY).message.content
    assert quote not in engine(indexer_rope_interleave=True).chat(chat, GREEDY).message.content
