"""A fast look at what scripts/evaluate.py measures in full: does the shipped checkpoint, in the engine, remember?

Held-out conversations, one forward pass each (teacher forcing): an answer counts if every token of its sentence is the
likeliest. Every name and value is new to the model."""

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


def share_right(llm: LLM, conversations: list[Conversation], kinds: tuple[str, ...] = ("told",)) -> float:
    right = asked = 0
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
            right += likeliest[start - 1 : start - 1 + len(answer)] == answer
        asked += len(answers)
    assert asked >= 8, "too few questions to say anything"
    return right / asked


def some(count: int, length: int, wording: str = "train", **options) -> list[Conversation]:
    return [write(f"fast {i}", length=length, split="test", wording=wording, **options) for i in range(count)]


def test_told_facts(llm):
    assert share_right(llm, some(4, 2500, density=0.7)) >= 0.95


def test_changed_and_untold_facts(llm):
    conversations = some(4, 2500, density=0.9, not_told=0.4, prefer_changed=1.0)
    assert share_right(llm, conversations, ("changed", "not_told")) >= 0.85


@pytest.mark.heavy
def test_phrasings_never_seen_in_training(llm):
    assert share_right(llm, some(6, 2500, wording="test", density=0.7)) >= 0.8


def test_fp8_as_deployed():
    assert share_right(engine("fp8"), some(2, 2500, density=0.8)) >= 0.9


@pytest.mark.heavy
def test_selection_reaches_far_and_the_known_indexer_bug_would_show(llm):
    """index_topk 128 of 4K tokens: right with the indexer, lost with its RoPE interleaved as early public code had it."""
    conversations = some(1, CHARACTERS_OF_4K, density=0.4, questions=24, not_told=0.0)
    assert share_right(llm, conversations) >= 0.9
    assert share_right(engine(indexer_rope_interleave=True), conversations) <= 0.5


def test_greetings_thanks_and_what_it_cannot_read(llm):
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
