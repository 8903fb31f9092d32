"""Structured outputs over models that say anything: whatever ends by itself has the form that was asked for."""

import json
import re
import string

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepseek_v32.inference import LLM, SamplingParams, StructuredOutputsParams
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.sampling.constraints import EVERY, make_masks, write_needed_masks
from deepseek_v32.inference.text.grammar import GrammarCompiler, Mask, check_function
from deepseek_v32.inference.text.tokenizer import END_THINK
from support.fake_model import AsyncRunner
from support.pages import check_pool
from support.preemption import preempt_every_other_step
from support.server import stand_in_llm
from support.tokenizers import MARKUP, make_tokenizer

TOKENIZER = make_tokenizer()
[END] = TOKENIZER.eos_ids
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
    },
    "required": ["name", "kind", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^[a-f]{2,3}$"}]}},
}


def structured(**kind):
    return SamplingParams(temperature=1, seed=3, max_tokens=300, structured_outputs=StructuredOutputsParams(**kind))


@pytest.fixture(scope="module", params=[False, True], ids=["", "ahead"])
def llm(request) -> LLM:
    """An LLM whose model generates noise and never ends by itself."""
    llm = stand_in_llm()
    if request.param:
        llm.engine.runner = AsyncRunner(
            llm.model, llm.engine.runner.caches
        )  # steps are launched before tokens are read
    return llm


def answers(llm, params, count=6):
    params = [SamplingParams(**{**vars(params), "seed": seed}) for seed in range(count)]
    prompts = [[5 + seed] * (1 + 20 * seed) for seed in range(count)]
    unconstrained = SamplingParams(max_tokens=40, seed=1)
    *completions, other = llm.generate([*prompts, [7, 8, 9]], [*params, unconstrained])
    assert [completion.error for completion in completions] == [None] * count
    assert other.token_ids == llm.generate([[7, 8, 9]], unconstrained)[0].token_ids
    return completions


def test_a_schema_is_kept(llm):
    validator = jsonschema_rs.validator_for(SCHEMA)
    completions = answers(llm, structured(json=SCHEMA))
    for completion in completions:
        assert completion.finish_reason == "stop" and completion.token_ids[-1] == END
        value = json.loads(completion.text)
        assert validator.is_valid(value), value
    assert len({completion.text for completion in completions}) > 2


FORMS = {
    "json_object": ({"json_object": True}, lambda text: isinstance(json.loads(text), dict)),
    "schema-as-text": ({"json": '{"type": "boolean"}'}, lambda text: text in ("true", "false")),
    "regex": ({"regex": "[a-c]{3}-[0-9]{2,4}é?"}, re.compile("[a-c]{3}-[0-9]{2,4}é?").fullmatch),
    "choice": ({"choice": ["rain", 'a "b"', "🙂"]}, lambda text: text in ("rain", 'a "b"', "🙂")),
    "lark": ({"grammar": 'start: "x" (A | B)\nA: /[0-9]/\nB: "é"'}, re.compile("x([0-9]|é)").fullmatch),
    "gbnf": ({"grammar": 'root ::= "x" [0-9] ("y" | "z")'}, re.compile("x[0-9][yz]").fullmatch),
}


@pytest.mark.parametrize(("kind", "holds"), FORMS.values(), ids=FORMS)
def test_every_form_is_kept(llm, kind, holds):
    for completion in answers(llm, structured(**kind), count=4):
        if completion.finish_reason == "stop":
            assert holds(completion.text), completion.text
        else:  # an object of noise may be longer than the tokens
            assert "json_object" in kind and completion.text.startswith("{")


def test_the_same_under_preemption(llm):
    params = structured(json=SCHEMA)
    quiet = [completion.token_ids for completion in answers(llm, params)]
    forced = preempt_every_other_step(other := stand_in_llm())
    assert [completion.token_ids for completion in answers(other, params)] == quiet
    assert any(forced)


MALFORMED = {
    "regex": (
        {"regex": "a(b"},
        r"structured_outputs\.regex cannot be compiled: .*: regex parse error: unclosed group$",
    ),
    "schema": ({"json": {"type": "objectt"}}, "cannot be compiled: .*objectt"),
    "reference": ({"json": {"$ref": "#/nope"}}, "cannot be compiled: .*nope"),
    "no schema": ({"json": "[1]"}, "expected a JSON schema"),
    "grammar": ({"grammar": 'start: "a'}, "cannot be compiled: .*lexer error"),
    "rule": ({"grammar": "start: b"}, "cannot be compiled: .*unknown name"),
    "look-ahead": ({"regex": "(?=a)b"}, "cannot be compiled"),
    "impossible": ({"json": {"type": "string", "minLength": 3, "maxLength": 2}}, "cannot be compiled"),
    "long choice": ({"choice": ["a", "b" * 4097]}, "choice has a text of 4097 characters; expected at most 4096"),
    "long regex": ({"regex": "a" * 4097}, "regex has a text of 4097 characters"),
    "long constant": (
        {"json": {"properties": {"a": {"enum": [1, {"b": "c" * 4097}]}}}},
        "json has a text of 4097 characters",
    ),
    "huge": ({"regex": "a" * 2**18 + "b"}, "expected at most"),
}


@pytest.mark.parametrize(("kind", "message"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_refused_in_one_line(kind, message):
    with pytest.raises(ValueError, match=message) as error:
        stand_in_llm().generate([[5]], structured(**kind))
    assert "\n" not in str(error.value)


# llguidance compiles them to other numbers, or for minutes; the lowest integer ends the process.
LOST = [
    {"const": 2**53 + 1}, {"enum": [1, 2**63]}, {"const": -(2**63)}, {"const": {"a": [-1e300]}}, {"enum": [1e19]},
    {"type": "integer", "minimum": 10**20, "maximum": 10**20 + 3}, {"exclusiveMinimum": 2**63, "maximum": 2**64},
    {"type": "integer", "minimum": -(2**63), "maximum": -(2**63)}, {"maximum": -1e19, "minimum": -1e20},
    {"type": "integer", "multipleOf": 2**31}, {"type": "integer", "multipleOf": 10**9},
    {"type": "number", "multipleOf": 12345.6789}, {"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 9967}]},
]  # fmt: skip
KEPT = [
    ({"const": 2**53}, str(2**53)), ({"enum": [2**60, 0.1]}, "0.1"), ({"const": -(2**62)}, str(-(2**62))),
    ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, str(2**53 + 1)),
    ({"type": "integer", "multipleOf": 10**8}, "300000000"), ({"type": "number", "multipleOf": 0.25}, "1.75"),
    ({"properties": {"const": {"type": "integer", "default": 2**70}}, "additionalProperties": False}, '{"const": 5}'),
]  # fmt: skip


@pytest.mark.parametrize("schema", LOST, ids=str)
def test_numbers_that_a_grammar_would_change_are_refused(schema):
    nested = {"type": "object", "properties": {"const": schema}, "required": ["const"]}
    compiler = GrammarCompiler(TOKENIZER, TOKENIZER.vocab_size, TOKENIZER.eos_ids)
    for kind in ({"json": schema}, {"json": json.dumps(nested)}, {"grammar": f'start: "a" %json {json.dumps(nested)}'}):
        with pytest.raises(
            ValueError, match=r"holds .*; expected (numbers that 64-bit floats hold|at most \d+ remainders)"
        ):
            compiler.compile(StructuredOutputsParams(**kind))
    with pytest.raises(ValueError, match=r"parameters holds .*; expected "):
        check_function({"name": "f", "parameters": nested})


@pytest.mark.parametrize(("schema", "text"), KEPT, ids=str)
def test_numbers_that_a_grammar_keeps(schema, text):
    assert jsonschema_rs.is_valid(schema, json.loads(text))
    follows, output = grammar(json=schema), []
    for token in [*TOKENIZER.encode(text), TOKENIZER.eos_ids[0]]:
        assert token in allowed(mask_of(follows, output))
        output.append(token)


DEAD_ENDS = {
    "nothing": 'start: a\na: a "x"',
    "left": 'start: "a" b\nb: b "x"',
    "right": 'start: "a" b\nb: "x" b',
    "in a choice": 'start: "a" | "b" c\nc: ("d"\n  | "e") c // "no" end',
    "optional": 'start: "a" b?  # it"s\nb: "x" b // "b',
    "two": 'start: "a" b\nb: "p" c\nc: B b\nB: "b: c"',
    "in brackets": 'start: "a" (b | "c" b)\nb[max_tokens=9]: <[5]> b+',
    "terminal": 'start: "a" B\nB: /x/ & /y/',
    "named by another": 'start: "a" B\nB: C /z/\nC: /x/ & /y/',
    "expression": 'start: "a" /[^\\s\\S]/',
    "class": 'start: "a" B\nB: /[a-c&&d]/',
    "schema": 'start: "a" %json {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}',
    "gbnf": 'root ::= "a" b\nb ::= "x" b # no end',
}
COMPLETE = {
    "recursive": 'start: "(" start? ")" | list\nlist: "[" (start ("," start)*)? "]"',
    "words that look like rules": 'start: a\n%ignore / +/\na: "\\"b: b" /"c: \\/c/ A // d: d\n  | <[5]> a\nA: "x"i',
    "schema": 'start: "a" %json {"properties": {"b": {"const": "start: start"}}} | %regex {"substring_words": "a b"}',
    "long": 'start: a{2,1000}\na: /x{1,1000}/ "," | B{0,3} ";"\nB: /[^a]/',
    "names": "start: _start_ other_1\n_start_: other_1*\nother_1: /y/ | _T\n_T: /[^y]/",
    "gbnf": 'root ::= ("a" | b)* \nb ::= "x" [^x] b?',
}


@pytest.mark.parametrize("text", DEAD_ENDS.values(), ids=DEAD_ENDS)
def test_a_grammar_with_a_dead_end_is_refused(text):
    """The answer would fail in the middle."""
    with pytest.raises(ValueError, match=r"structured_outputs\.grammar cannot be compiled: ") as error:
        grammar(grammar=text)
    assert "\n" not in str(error.value)


def test_long_chains_of_references_are_followed():
    """llguidance follows them by recursion, in which a usual stack overflows: that would end the process."""
    chain = "start: r0\n" + "\n".join(f'r{i}: "x" r{i + 1} | "y"' for i in range(9000)) + '\nr9000: "z"'
    objects = {f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(2000)}
    for kind in ({"grammar": chain}, {"json": {"$ref": "#/$defs/d0", "$defs": {**objects, "d2000": {"type": "null"}}}}):
        assert allowed(mask_of(grammar(**kind), []))
    check_function(
        {"name": "f", "parameters": {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**objects, "d2000": {}}}}
    )


@pytest.mark.parametrize("text", COMPLETE.values(), ids=COMPLETE)
def test_a_grammar_without_a_dead_end_is_followed(text):
    mask, random, output = grammar(grammar=text), np.random.default_rng(1), []
    for _ in range(40):
        choices = sorted(allowed(mask_of(mask, output)) - {END})
        if not choices:
            break
        output.append(int(random.choice(choices)))


@pytest.mark.parametrize(
    "kind", [{}, {"json_object": True, "regex": "a"}, {"choice": []}, {"choice": "ab"}, {"regex": 5}]
)
def test_exactly_one_form(kind):
    with pytest.raises(ValueError, match="structured_outputs"):
        StructuredOutputsParams(**kind)


def test_texts_of_a_schema_that_are_not_matched_may_be_long():
    schema = {"description": "d" * 5000, "properties": {"pattern": {"type": "null", "description": "d" * 5000}}}
    assert StructuredOutputsParams(json=schema).description()[0] == "json"


def test_a_list_of_4096_choices_is_kept():
    """As rules of a grammar, such a list compiles and fails at the first mask; here the words are one automaton."""
    choices = [f"{number * 7919 % 4096:012b}" for number in range(4096)]
    mask, output = grammar(choice=choices), []
    for token in TOKENIZER.encode(choices[-1]):
        assert token in (found := allowed(mask_of(mask, output)))
        assert {TOKENIZER.decode([id]).strip("01") for id in found} == {""}
        output.append(token)
    assert allowed(mask_of(mask, output)) == set(TOKENIZER.eos_ids)


def test_without_a_tokenizer_there_is_no_form():
    with pytest.raises(ValueError, match="byte-level tokenizer"):
        GrammarCompiler(None, 10, [1]).compile(StructuredOutputsParams(regex="a"))


def allowed(mask, vocab=TOKENIZER.vocab_size):
    return {token for token in range(vocab) if mask[token // 32] >> token % 32 & 1}


def mask_of(grammar, output, may_end=True):
    [mask] = Mask.rows(np.empty_like(grammar._unended)[None])
    grammar.write_mask(output, 0, mask, may_end)
    return mask.words


def grammar(vocab=TOKENIZER.vocab_size, end_ids=TOKENIZER.eos_ids, **kind):
    return GrammarCompiler(TOKENIZER, vocab, end_ids).compile(StructuredOutputsParams(**kind))


def test_a_mask_is_the_set_of_tokens_that_lead_on():
    """Masks agree with the prefixes of the texts, written out."""
    texts = ["quick", "quiet fox", "é🙂"]
    mask = grammar(choice=texts, vocab=500, end_ids=(END, 450))
    output: list[int] = []
    for token in TOKENIZER.encode("quiet fox"):
        begun = TOKENIZER.decode(output).encode()
        rests = [text.encode()[len(begun) :] for text in texts if text.encode().startswith(begun)]
        fits = {
            id for id, name in enumerate(TOKENIZER.plain.decode([id]) for id in range(400))
            if any(rest and name and rest.startswith(name.encode()) for rest in rests)
        }  # fmt: skip
        found = allowed(mask_of(mask, output), 500)
        assert token in found and found <= fits | set(range(3, 260))
        output.append(token)
    assert allowed(mask_of(mask, output), 500) == {END, 450}


def test_a_shorter_output_is_followed_back():
    tokens = TOKENIZER.encode('{"kind": "cat"}')
    one, other = (grammar(json={"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}}) for _ in range(2))
    masks = [mask_of(one, tokens[:count]).copy() for count in range(len(tokens))]
    for count in (5, 2, 7, 6, 0, len(tokens) - 1):
        assert np.array_equal(mask_of(other, tokens[:count]), masks[count])


def test_an_output_that_is_shorter_than_its_thoughts_is_followed_back():
    thoughts, end_think = TOKENIZER.encode("so be it"), TOKENIZER.special_ids[END_THINK]
    tokens = [*thoughts, end_think, *TOKENIZER.encode("abc")]
    one, other = (grammar(regex="[a-d]{6}", after_thinking=True) for _ in range(2))
    masks = [mask_of(one, tokens[:count]) for count in range(len(tokens) + 1)]
    assert len({frozenset(allowed(mask)) for mask in masks}) >= 2
    for count in (len(tokens), len(thoughts), len(tokens) - 1, 1, 0, len(tokens)):
        assert np.array_equal(mask_of(other, tokens[:count]), masks[count])
    mask_of(other, thoughts[:2])
    late = [*thoughts[:2], *thoughts, end_think]  # the thoughts end elsewhere than before
    assert np.array_equal(mask_of(other, late), masks[len(thoughts) + 1])


@pytest.mark.parametrize("count", [1, 20])
def test_masks_of_a_step_are_those_of_its_rows(count):
    end_think, vocab = TOKENIZER.special_ids[END_THINK], TOKENIZER.vocab_size
    requests, expected = [], []
    for id in range(count):
        kind = {"regex": f"[a-d]{{0,{id}}}", "after_thinking": id % 3 == 2}
        params = SamplingParams(min_tokens=id % 5, structured_outputs=StructuredOutputsParams(**kind))
        request = Request(id, (7, 8), params, 100, 0, grammar=grammar(**kind))
        if id % 6 == 2:
            request.tokens.append(end_think)
        request.tokens += TOKENIZER.encode("a" * (id % 4))
        requests.append(request)
        expected.append(mask_of(grammar(**kind), request.output, len(request.output) >= params.min_tokens))
    masks = make_masks(requests, vocab, pinned=False).numpy().view(np.uint32)
    assert [allowed(mask) for mask in masks] == [allowed(mask) for mask in expected]
    assert len({frozenset(allowed(mask)) for mask in masks}) >= min(count, 4)


@pytest.mark.parametrize(
    "kind",
    [
        {"json": SCHEMA},
        {"regex": "(ab|a|ba){3,9}c?", "after_thinking": True},
        {"choice": ["quick", "quiet fox", "é🙂"]},
        {"grammar": 'start: "(" start? ")" | /[0-9]+/'},
    ],
    ids=["json", "regex", "choice", "grammar"],
)
def test_a_token_is_taken_if_the_mask_holds_it(kind):
    """Along answers of random tokens, at every place for every token of the vocabulary, whatever was asked before. All that the
    mask holds are taken, or none: where the next bytes are certain."""
    vocab, random = TOKENIZER.vocab_size + 7, np.random.default_rng(1)
    end_think = TOKENIZER.special_ids[END_THINK]
    places = {"free": 0, "certain": 0}
    for _ in range(4):
        asked, masks = (grammar(vocab=vocab, end_ids=(END, 3), **kind) for _ in range(2))
        output = [*TOKENIZER.encode("Hm"), end_think] if "after_thinking" in kind else []
        for place in range(30):
            held = allowed(mask_of(masks, output), vocab) - {END, 3}
            tokens = random.permutation(vocab).tolist()
            taken = {token for token in tokens if asked.takes([9, *output], 1, token)}
            assert taken in (held, set())
            places["free" if taken else "certain"] += 1
            if not held:
                break
            output.append(int(random.choice(sorted(held))))
            if place % 7 == 6:  # two steps are forgotten
                del output[-2:]
            assert np.array_equal(mask_of(asked, output), mask_of(masks, output))
    assert places["free"] >= 4


class Likeliest:
    """Tokens that arrive after a given number of looks."""

    def __init__(self, tokens, looks):
        self.tokens, self._looks = tokens, looks

    def __call__(self):
        self._looks -= 1
        return self.tokens if self._looks < 0 else None


@pytest.mark.parametrize("looks", [0, 1, 2, 3])
def test_masks_are_made_only_where_the_likeliest_token_may_not_come(looks):
    """Ten rows, of which the fourth has no grammar: with every token taken, with one refused, and with one that may end."""
    vocab, [a, b] = TOKENIZER.vocab_size, TOKENIZER.encode("ab")
    words = np.empty((10, -(-vocab // 32)), dtype=np.uint32)
    masks = Mask.rows(words)

    def needed(tokens, **options):
        params = SamplingParams(**options)
        requests = [Request(id, (7,), params, 100, 0, grammar=grammar(regex="a*")) for id in range(10)]
        requests[3].grammar = None
        words.view(np.int32)[:] = EVERY
        return write_needed_masks(requests, masks, Likeliest(tokens, looks))

    made, mask = 4 * looks, allowed(mask_of(grammar(regex="a*"), []))  # no look comes after the tenth row
    assert a in mask and b not in mask and END in mask
    assert needed([a, a, a, b, a, a, a, a, a, END]) is (looks == 3)
    for refused in (b, END):
        assert needed([a] * 8 + [refused, a], min_tokens=2)
        for row, found in enumerate(masks):
            every = row == 3 or (row >= made and row != 8)
            assert allowed(found.words, vocab) == (set(range(vocab)) if every else mask - {END}), row


def test_control_tokens_are_no_text():
    control = {TOKENIZER.special_ids[text] for text in MARKUP}
    for kind in ({"regex": "(?s:.*)"}, {"json": {"type": "string"}}):
        mask = grammar(**kind)
        assert not control & allowed(mask_of(mask, TOKENIZER.encode('"a')))


def test_a_form_begins_after_the_reasoning():
    end_think = TOKENIZER.special_ids[END_THINK]
    mask = grammar(regex="[0-9]", after_thinking=True)
    thought = TOKENIZER.encode("so it is")
    assert allowed(mask_of(mask, thought)) == set(range(TOKENIZER.vocab_size)) - {END}
    assert TOKENIZER.decode(sorted(allowed(mask_of(mask, [*thought, end_think])))).strip() == string.digits
    assert allowed(mask_of(mask, [*thought, end_think, *TOKENIZER.encode("7")])) == {END}


def test_the_answer_to_a_chat_keeps_its_form_and_the_reasoning_none(llm):
    ask = [{"role": "user", "content": "Hi"}]
    tokens = [*TOKENIZER.encode("Hm, so"), TOKENIZER.special_ids[END_THINK]]
    llm.model.say(tokens, len(llm.chat_token_ids(ask, thinking=True)))
    answer = llm.chat(ask, structured(choice=["yes", "no"]), thinking=True).message
    llm.model.forget()
    assert answer.reasoning_content == "Hm, so" and answer.content in ("yes", "no")
    assert llm.chat(ask, structured(choice=["yes", "no"])).message.content in ("yes", "no")


def test_a_fault_in_a_mask_ends_its_request_alone(llm, monkeypatch):
    requests = []
    make = llm.engine.requests.from_tokens

    def failing(*arguments, **options):
        request = make(*arguments, **options)
        requests.append(request)
        if len(requests) == 2:
            write = request.grammar.write_mask

            def write_mask(tokens, first, mask, may_end):
                if len(tokens) - first == 3:
                    raise RuntimeError("the mask is torn\nin two")
                write(tokens, first, mask, may_end)

            monkeypatch.setattr(request.grammar, "write_mask", write_mask)
        return request

    params = structured(regex="[a-z]{40}")
    whole = [completion.token_ids for completion in llm.generate([[5], [6], [7]], params)]
    monkeypatch.setattr(llm.engine.requests, "from_tokens", failing)
    good, bad, other = llm.generate([[5], [6], [7]], params)
    assert (bad.finish_reason, bad.error) == ("error", "sampling failed: RuntimeError: the mask is torn")
    assert bad.token_ids == whole[1][:3]
    assert [good.token_ids, other.token_ids] == [whole[0], whole[2]]
    check_pool(llm.engine.pool)


def test_min_tokens(llm):
    """The end would come at once, and a complete form ends the answer all the same."""
    llm.model.say([], 1)
    assert llm.generate([[5]], SamplingParams(temperature=0, max_tokens=30))[0].token_ids == [END]
    late = llm.generate([[5]], SamplingParams(temperature=0, max_tokens=30, min_tokens=30))[0]
    assert len(late.token_ids) == 30 and END not in late.token_ids
    stops = SamplingParams(temperature=0, max_tokens=30, min_tokens=12, stop=["a", "e", "i", " "], seed=1)
    assert len(llm.generate([[6] * 9], stops)[0].token_ids) >= 12
    llm.model.forget()
    params = SamplingParams(max_tokens=9, min_tokens=9, structured_outputs=StructuredOutputsParams(regex="ab?"))
    assert llm.generate([[5]], params)[0].text == "ab"


def test_logit_bias(llm):
    wanted = SamplingParams(temperature=0, max_tokens=5, logit_bias={77: 100, 78: -100})
    assert llm.generate([[5]], wanted)[0].token_ids == [77] * 5
    plain = llm.generate([[5]], SamplingParams(temperature=0, max_tokens=1))[0].token_ids
    never = SamplingParams(temperature=0, max_tokens=1, logit_bias={plain[0]: -100})
    assert llm.generate([[5]], never)[0].token_ids != plain
    for bias in ({1: 101}, {-1: 0}, {"1": 0}, {1: float("nan")}, {5000: 1}, dict.fromkeys(range(301), 1)):
        with pytest.raises(ValueError, match="logit_bias"):
            llm.generate([[5]], SamplingParams(logit_bias=bias))


schemas = st.recursive(
    st.sampled_from([*({"type": name} for name in ("boolean", "null", "integer", "string")), {"const": "é"}, {"enum": [1, "a"]}]),
    lambda inner: st.builds(lambda items: {"type": "array", "items": items, "maxItems": 2}, inner)
    | st.builds(
        lambda properties: {
            "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False
        },
        st.dictionaries(st.sampled_from(["a", "b c", "é", '"']), inner, max_size=3),
    )
    | st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=2)),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=30)
@given(schemas, st.integers(0, 99))
def test_any_schema_is_kept(schema, seed):
    mask, random = grammar(json=schema), np.random.default_rng(seed)
    output: list[int] = []
    while len(output) < 120:
        choices = sorted(allowed(mask_of(mask, output)))
        if END in choices:
            break
        output.append(int(random.choice(choices)))
    else:
        return  # a long text
    assert jsonschema_rs.is_valid(schema, json.loads(TOKENIZER.decode(output)))
