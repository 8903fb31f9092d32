"""The generator of the demo's conversations: answers that the text holds, questions with one answer, disjoint splits."""

import json
import random
import re

import pytest
from tokenizers import Tokenizer

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.text.messages import v32_pieces
from deepseek_v32.inference.text.tokenizer import Special
from demo_model.dialogues import BASE, FAMILIES, Conversation, calls, layouts, manners, scenes, tools, write
from demo_model.dialogues.clauses import Grammar
from demo_model.dialogues.layouts import tables
from demo_model.dialogues.plain import topics
from demo_model.dialogues.turns import yours
from demo_model.dialogues.wording import WORDINGS
from demo_model.training import data, vocabulary

SEEDS = range(30)
FRAMES = (
    *(
        "attribute_statements",
        "owner_statements",
        "attribute_questions",
        "owner_questions",
        "locations",
        "location_questions",
    ),
    *(
        "relation_statements",
        "relation_questions",
        "namings",
        "naming_questions",
        "leads",
        "tails",
        "indirect",
        "changes",
        "restated",
        "elliptic",
        "contrasts",
        "before_named",
        "before",
    ),
    *("moves", "shifts"),
)


def conversations(split: str = "train", **options) -> list[Conversation]:
    """Conversations of the shipped checkpoint's families and of all families, in turn."""
    return [write(n, length=5000, split=split, families=(BASE, FAMILIES)[n % 2], **options) for n in SEEDS]


def test_same_arguments_same_conversation():
    assert write(7, length=3000, split="validation") == write(7, length=3000, split="validation")
    assert write(7, length=3000, split="validation") != write(8, length=3000, split="validation")


@pytest.mark.parametrize("split", WORDINGS)
def test_answers_begin_with_a_value_of_the_sentence_that_they_quote(split):
    kinds = set()
    for conversation in conversations(split):
        for turn in conversation.turns:
            if turn.kind not in ("stated", "updated"):
                continue
            kinds.add(turn.kind)
            where, start, end = turn.fact
            sentence = conversation.turns[where].user[start:end]
            assert turn.assistant.startswith(turn.value + ". You") and sentence.strip() in turn.assistant
            assert turn.value in yours(sentence)
    assert kinds == {"stated", "updated"}


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


@pytest.mark.parametrize("layout", sorted(set(layouts.LAYOUTS), key=lambda f: (f.__module__, f.__name__)))
def test_every_question_of_a_layout_is_answered_by_its_line(layout):
    asked = 0
    for seed in range(40):
        for line, questions in layout(Grammar(random.Random(seed), "train", WORDINGS["train"])):
            for question in questions:
                assert question.direct or question.short
                assert question.value in line
                assert not re.search(r"[{}]", "".join(question.direct).replace(question.value, "")) or "{" in line
                asked += question.value != ""
    assert asked > 40


def test_what_a_table_does_not_say_is_in_no_line():
    found = 0
    for seed in range(60):
        lines = tables.table(Grammar(random.Random(seed), "train", WORDINGS["train"]))
        answered = {ask for _, questions in lines for q in questions if q.value for ask in q.direct}
        for question in (q for _, questions in lines for q in questions if not q.value):
            assert not answered & set(question.direct)
            found += 1
    assert found > 60


def test_calls_take_their_arguments_from_the_request_and_fit_the_schema():
    found, types = 0, set()
    for conversation in conversations(functions=1.0):
        schemas = {f.name: f.schema["function"]["parameters"]["properties"] for f in conversation.functions}
        for turn in conversation.turns:
            for name, arguments in turn.call.calls if turn.call else ():
                assert arguments.keys() == schemas[name].keys()
                assert all(leaf in turn.user for leaf in tools.leaves(arguments))
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
                    assert not isinstance(value, bool) or tools.said(value) in turn.user.lower()
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
                assert not calls.serves(conversation.functions, turn.user)
                refused += 1
    assert refused > 5


@pytest.mark.parametrize(("one", "other"), [("train", "validation"), ("train", "test"), ("validation", "test")])
def test_splits_share_no_frame(one, other):
    for name in FRAMES:
        # Frames that everybody uses are in one split all the same.
        assert not set(getattr(WORDINGS[one], name)) & set(getattr(WORDINGS[other], name)), name
    for forms in (scenes.STATEMENTS, scenes.QUESTIONS, scenes.CHANGES):
        assert not set(forms[one]) & set(forms[other])
    assert not {p.name for p in WORDINGS[one].predicates} & {p.name for p in WORDINGS[other].predicates}


def test_statements_are_many():
    wording = WORDINGS["train"]
    frames = sum(len(getattr(wording, name)) for name in FRAMES)
    plain = [form for t in topics.TOPICS.values() for form in t.statements["train"]]
    plain += [
        form
        for t in topics.TOPICS.values()
        for a in t.attributes.values()
        for form in (*a.asks_of["train"], *a.changes["train"])
    ]
    assert frames > 780 and frames + len(plain) > 1800
    assert (
        len(wording.predicates) > 400 and len(scenes.STATEMENTS["train"]) > 900 and len(scenes.QUESTIONS["train"]) > 900
    )
    grammar = Grammar(random.Random(1), "train", wording)
    shapes = {re.sub(r"\d+", "0", grammar.fact().frame) for _ in range(4000)}
    assert len(shapes) > 600, "verbs and attributes in their tenses"


@pytest.mark.parametrize("split", WORDINGS)
def test_scenes_state_the_values_that_they_are_asked_for(split):
    grammar = Grammar(random.Random(2), split, WORDINGS[split])
    for _ in range(1500):
        fact = grammar.scene()
        for question in fact.questions:
            assert question.value.lower() in fact.sentence.lower()
            assert all("{new}" in change for change in question.changes)
            texts = [fact.sentence, *question.direct, *question.short, *question.topics]
            texts += [change.replace("{new}", "").replace("{old}", "") for change in question.changes]
            assert not any(mark in text for text in texts for mark in "{}[]|"), texts


def test_a_changed_value_is_remembered_with_the_one_before():
    before, short = 0, 0
    for seed in range(100):
        conversation = write(
            seed, length=1500, split="train", prefer_updated=0.9, density=1.0, functions=0.0, families=FAMILIES
        )
        for turn in conversation.turns:
            if turn.kind == "stated" and " Now: " in turn.assistant:
                where, start, end = turn.fact
                assert turn.value in yours(conversation.turns[where].user[start:end])
                before += 1
            # "Actually make that 15." names nothing but the value.
            short += (
                turn.kind == "updated" and len(turn.fact) == 3 and turn.fact[2] - turn.fact[1] < len(turn.value) + 20
            )
    assert before > 10 and short > 10


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
        pieces = v32_pieces(messages, thinks, [f.schema for f in conversation.functions])
        expected = "".join(piece.text if isinstance(piece, Special) else piece for piece in pieces)
        assert tokenizer.decode(encode(conversation)[0], skip_special_tokens=False) == expected


def joined(pieces) -> str:
    return "".join(text for text, _ in pieces or ())
