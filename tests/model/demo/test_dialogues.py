"""The generator of the demo's conversations: answers that the text holds, questions with one answer, disjoint splits."""

import json
import multiprocessing
import re
from collections import Counter
from queue import SimpleQueue

import pytest
from tokenizers import Tokenizer

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.text.messages import v32_pieces
from deepseek_v32.inference.text.tokenizer import Special
from demo_model.dialogues import FAMILIES, Conversation, functions, manners, write
from demo_model.dialogues.splits import SPLITS
from demo_model.dialogues.turns import yours
from demo_model.training import data, vocabulary

SEEDS = range(30)


def conversations(split: str = "train", **options) -> list[Conversation]:
    return [write(n, length=5000, split=split, **options) for n in SEEDS]


def test_same_arguments_same_conversation():
    assert write(7, length=3000, split="validation") == write(7, length=3000, split="validation")
    assert write(7, length=3000, split="validation") != write(8, length=3000, split="validation")


@pytest.mark.parametrize("split", SPLITS)
def test_answers_begin_with_a_value_of_the_sentence_that_they_quote(split):
    kinds, before = Counter(), 0
    for conversation in conversations(split):
        for turn in conversation.turns:
            if turn.kind not in ("stated", "updated"):
                continue
            kinds[turn.kind] += 1
            before += " Now: " in turn.assistant
            where, start, end = turn.fact
            sentence = conversation.turns[where].user[start:end]
            assert turn.assistant.startswith(turn.value + ". You") and sentence.strip() in turn.assistant
            assert turn.value in yours(sentence)
    assert min(kinds["stated"], kinds["updated"]) > 60 and before > 3, "some ask for the value before a change"


def test_a_question_is_not_asked_before_its_fact_is_stated():
    for conversation in conversations():
        for number, turn in enumerate(conversation.turns):
            assert turn.fact is None or turn.fact[0] <= number


def test_unanswerable_questions_name_nothing_that_was_asked_with_an_answer():
    # The same words cannot be both answerable and not, unless the fact was stated in between.
    for conversation in conversations():
        answered = {turn.user.lower().strip("?. ") for turn in conversation.turns if turn.kind == "stated"}
        refused = {turn.user.lower().strip("?. ") for turn in conversation.turns if turn.kind == "unanswerable"}
        assert not answered & refused


def test_two_hops_quote_both_facts_in_order():
    found = 0
    for conversation in conversations(thinking=1.0):
        for turn in conversation.turns:
            if turn.kind == "two hops":
                text = "".join(part for part, _ in turn.thought)
                first, second = re.fullmatch(r"(?s)First: (.*) Then: (.*)", text).groups()
                said = "\n".join(t.user for t in conversation.turns)
                assert first in said and second in said and second in turn.assistant
                found += 1
    assert found > 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_part_of_the_questions_has_no_answer_and_changes_are_many(family):
    kinds: Counter[str] = Counter()
    for seed in range(60):
        made = write(f"kinds {seed}", length=1500, split=SPLITS[seed % 3], families=(family,), functions=0.0)
        kinds.update(turn.kind for turn in made.turns)
    asked = kinds["unanswerable"] + kinds["stated"] + kinds["updated"] + kinds["two hops"]
    assert (0.02 if family == "hops" else 0.1) < kinds["unanswerable"] / asked < 0.35, kinds
    assert family == "hops" or kinds["updated"] > 0.01 * asked, kinds
    assert family not in ("near", "matters") or kinds["updated"] > 0.2 * asked, kinds
    assert family != "hops" or kinds["two hops"] > 0.4 * asked, kinds


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match=r"families is \['stories'\]; expected some of"):
        write(1, length=1000, families=("stories",))


def test_calls_take_their_arguments_from_the_request_and_fit_the_schema():
    found, types = 0, set()
    for conversation in conversations(functions=1.0):
        schemas = {f.name: f.schema["function"]["parameters"]["properties"] for f in conversation.functions}
        for turn in conversation.turns:
            for name, arguments in turn.call.calls if turn.call else ():
                assert arguments.keys() == schemas[name].keys()
                assert all(leaf in turn.user for leaf in functions.leaves(arguments))
                for key, value in arguments.items():
                    kinds = {
                        "string": str,
                        "integer": int,
                        "number": float,
                        "boolean": bool,
                        "array": list,
                        "object": dict,
                    }
                    assert type(value) is kinds[schemas[name][key]["type"]]
                    assert value in schemas[name][key].get("enum", [value])
                    assert not isinstance(value, bool) or functions.said(value) in turn.user.lower()
                    types.add(type(value))
                found += 1
            if turn.call:
                assert turn.call.answer[0][0].split(" and ")[0] in turn.call.results[0]
    assert found > 50 and len(types) == 6


def test_no_function_is_called_that_does_not_fit():
    refused = 0
    for conversation in conversations(functions=1.0):
        for turn in conversation.turns:
            if turn.kind == "talk" and turn.assistant == manners.NO_FUNCTION:
                assert not functions.serves(conversation.functions, turn.user)
                refused += 1
    assert refused > 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return vocabulary.train_tokenizer(
        tmp_path_factory.mktemp("demo") / "tokenizer.json", 1600, conversations=20, spaced=300
    )


@pytest.mark.parametrize("word", ["Zorvik", "thermos", "Kleodriadick-77", "ünïcode", "key"])
def test_a_word_has_the_same_pieces_with_and_without_a_space(tokenizer, word):
    bare, spaced = tokenizer.encode(word).tokens, tokenizer.encode(" " + word).tokens
    # The space is a token of its own, or part of the first one.
    assert spaced == ["Ġ", *bare] or (spaced[0] == "Ġ" + bare[0] and spaced[1:] == bare[1:])


def test_any_text_comes_back(tokenizer):
    for text in ("", " ", "a\n\n  b\t1234 5", "日本語 🎉\r\n", "\x00~", '{"a": [1, 2]}'):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("length", [1024, 4096])
def test_a_conversation_fills_its_number_of_tokens(length):
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    texts = [
        "\n".join(t.user + t.assistant for t in write(n, length=data.characters(length), functions=0.0).turns)
        for n in range(6)
    ]
    counts = [len(tokenizer.encode(text).ids) / length for text in texts]
    assert 0.6 < sum(counts) / 6 < 1.3


def test_a_conversation_that_cannot_be_written_costs_its_step_alone(monkeypatch):
    """Only that step is lost; otherwise training would wait for its batch for ever."""
    real, queue = data.batch, SimpleQueue()

    def fails(tokenizer, seed, *args, **options):
        if seed.startswith("7 1") or seed == "7 2":
            raise KeyError("a slot without a value")
        return real(tokenizer, seed, *args, **options)

    monkeypatch.setattr(data, "batch", fails)
    taken, room = multiprocessing.Value("l", 0), multiprocessing.Semaphore(9)
    data._work(str(DEMO / "tokenizer.json"), 7, [(256, 1)] * 3, queue, [0, 0, 0], taken, room, {})
    came = [queue.get() for _ in range(3)]
    assert [number for number, ids, _ in came if ids is not None] == [0, 2], "batch 2 is drawn again, with other words"


@pytest.mark.parametrize("thinks", [False, True])
def test_the_training_tokens_are_those_of_the_chat_format(tokenizer, thinks):
    """The first question of a conversation, as the product encodes it."""
    encode = data.Encoder(tokenizer)
    for seed in range(8):
        conversation = write(seed, length=2500, split="train", functions=float(seed % 2), thinking=float(thinks))
        del conversation.turns[1:]
        [turn] = conversation.turns
        messages = [{"role": "system", "content": conversation.system}, {"role": "user", "content": turn.user}]
        if turn.call:
            calls = [{"function": {"name": n, "arguments": json.dumps(a)}} for n, a in turn.call.calls]
            messages.append(
                {"role": "assistant", "content": "", "tool_calls": calls, "reasoning_content": joined(turn.thought)}
            )
            messages += [{"role": "tool", "content": result} for result in turn.call.results]
        answer, thought = (turn.call.answer, turn.call.thought) if turn.call else (turn.answer, turn.thought)
        messages.append({"role": "assistant", "content": joined(answer), "reasoning_content": joined(thought)})
        pieces = v32_pieces(messages, turn.thought is not None, [f.schema for f in conversation.functions])
        expected = "".join(piece.text if isinstance(piece, Special) else piece for piece in pieces)
        assert tokenizer.decode(encode(conversation)[0], skip_special_tokens=False) == expected


def joined(pieces) -> str:
    return "".join(text for text, _ in pieces or ())
