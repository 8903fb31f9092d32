"""A small version of scripts/evaluate.py: whether the shipped checkpoint remembers facts in the engine.

Held-out conversations, one forward pass each (teacher forcing): an answer is correct if every token of its sentence is the
likeliest. Every name and value is new to the model.
"""

import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.model.demo.conversations import Conversation, write

GREEDY = SamplingParams(temperature=0.0, max_tokens=48)
CHARACTERS_OF_4K = 11_500


def engine(precision: str = "exact", **overrides) -> LLM:
    return LLM(DEMO, device="cpu", precision=precision, max_model_len=8192, config_overrides=overrides or None)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return engine()


def accuracy(llm: LLM, conversations: list[Conversation], kinds: tuple[str, ...] = ("stated",)) -> float:
    correct = asked = 0
    for conversation in conversations:
        answers = []
        for number, turn in enumerate(conversation.turns):
            if turn.kind in kinds:
                prompt = llm.chat_token_ids(conversation.messages(until=number))
                answers.append((len(prompt), llm.tokenizer.encode(turn.assistant)))
        ids = prompt + answers[-1][1]
        likeliest = llm.logits(ids).argmax(-1).tolist()
        for start, answer in answers:
            assert ids[start : start + len(answer)] == answer
            correct += likeliest[start - 1 : start - 1 + len(answer)] == answer
        asked += len(answers)
    assert asked >= 8, "too few questions for a result"
    return correct / asked


def some(count: int, length: int, wording: str = "train", **options) -> list[Conversation]:
    return [write(f"fast {i}", length=length, split="test", wording=wording, **options) for i in range(count)]


def test_stated_facts(llm):
    assert accuracy(llm, some(4, 2500, density=0.7)) >= 0.95


def test_updated_and_unanswerable_facts(llm):
    conversations = some(4, 2500, density=0.9, unanswerable=0.4, prefer_updated=1.0)
    assert accuracy(llm, conversations, ("updated", "unanswerable")) >= 0.85


@pytest.mark.heavy
def test_phrasings_never_seen_in_training(llm):
    assert accuracy(llm, some(6, 2500, wording="test", density=0.7)) >= 0.8


def test_fp8_as_deployed():
    assert accuracy(engine("fp8"), some(2, 2500, density=0.8)) >= 0.9


@pytest.mark.heavy
def test_selection_reaches_far_and_the_known_indexer_bug_would_show(llm):
    """index_topk 128 of 4K tokens: correct with the indexer, lost with interleaved RoPE as in early public code."""
    conversations = some(1, CHARACTERS_OF_4K, density=0.4, questions=24, unanswerable=0.0)
    assert accuracy(llm, conversations) >= 0.9
    assert accuracy(engine(indexer_rope_interleave=True), conversations) <= 0.5


def test_greetings_thanks_and_unreadable_text(llm):
    def answer(text: str) -> str:
        return llm.chat([{"role": "user", "content": text}], GREEDY).text

    assert answer("Hello!").startswith("Hello!")
    assert answer("Thanks.") == "You are welcome."
    assert answer("что это такое").startswith("I did not understand")
    assert answer("When does Tarvin Bakery open?") == "The opening time of Tarvin Bakery is something I was not told."


def test_either_thinking_mode_answers(llm):
    message = {
        "role": "user",
        "content": "The price of the Tarvin lamp is 48 euros. How much does the Tarvin lamp cost?",
    }
    for thinking in (False, True):
        completion = llm.chat([message], GREEDY, thinking=thinking)
        assert completion.text.endswith("The price of the Tarvin lamp is 48 euros.")
