"""The probe's client against servers that speak other dialects, give less than it asks for, or give nonsense."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from deepseek_v32.inference.commands.cli import app
from deepseek_v32.inference.conformance.golden import Item
from deepseek_v32.inference.conformance.probe import Client, Probe, ProbeError, Refused, observation_json
from support.answer_server import serving_answers

CHAT = ({"role": "user", "content": "Hi"},)
ITEMS = (
    Item("score", "score", (5, 6, 7, 8)),
    Item("decode", "decode", (5, 6, 7, 8, 9), CHAT, max_tokens=2),
    *(Item(f"batch {n}", "batch", (n, 6, 7), CHAT, max_tokens=2) for n in range(3)),
    Item("chat", "chat", (5,), CHAT, ({"type": "function"},), True, max_tokens=2),
)


@dataclass
class Scripted:
    """A server of which each part can be switched off."""

    logprobs: bool = True
    echo: bool = True
    token_ids: bool = True
    chats: bool = True
    can_be_told: bool = True  # whether to think
    noise: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if not self.token_ids:
            raise ValueError("prompt must be a text")
        if not self.logprobs and "logprobs" in body:
            raise ValueError("logprobs are not served")
        tokens = ["a", "b"][: body["max_tokens"]]
        if body.get("echo") and self.echo:
            tokens = [f"t{token}" for token in body["prompt"]] + tokens
        count = len(tokens)
        value = -1.0 - (len(self.asked) if self.noise else 0)
        block = {"tokens": tokens, "token_logprobs": [value] * count, "top_logprobs": [{"a": value}] * count}
        choice = {"text": "".join(tokens), "logprobs": block if "logprobs" in body else None}
        return {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"])}}

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if not self.chats:
            raise ValueError("no chat template")
        if not self.can_be_told and "chat_template_kwargs" in body:
            raise ValueError("chat_template_kwargs is no field")
        if not self.logprobs and "logprobs" in body:
            raise ValueError("logprobs are not served")
        entry = {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "a", "logprob": -1.0}]}
        call = {"id": "x", "function": {"name": "f", "arguments": '{"b": 1,   "a": 2}'}}
        message = {"content": "a", "reasoning": "why", "tool_calls": [call]}  # vLLM's newer name of the reasoning
        return {"choices": [{"message": message, "logprobs": {"content": [entry]} if "logprobs" in body else None}]}


def run(server: Scripted):
    with serving_answers(server) as address:
        return Probe(Client(address)).run(ITEMS)


def test_a_full_server():
    server = Scripted()
    seen = run(server)
    assert not seen.refusals and seen.replies.keys() == {item.name for item in ITEMS}
    assert seen.gives_logprobs and seen.scores_prompts and seen.takes_token_ids and seen.repeats
    assert seen.replies["score"].tokens == ("t6", "t7", "t8") and seen.replies["score"].logprobs == (-1.0,) * 3
    assert seen.replies["decode"].tokens == ("a", "b") and seen.replies["decode"].top[0] == {"a": -1.0}
    chat = seen.replies["chat"]
    assert (chat.text, chat.reasoning, chat.calls) == ("a", "why", '[["f", {"a": 2, "b": 1}]]')
    asked = server.asked[-4 - 1]
    assert asked["temperature"] == 0 and asked["tools"] and asked["chat_template_kwargs"]["thinking"] is True
    assert json.loads(observation_json(seen))["replies"]["score"]["logprobs"] == [-1.0] * 3


@pytest.mark.parametrize("thinking", [True, False])
def test_a_server_is_told_whether_to_think(thinking):
    """A server that rejects the field is asked again without it, and later requests leave it out."""
    for server in (Scripted(), Scripted(can_be_told=False)):
        with serving_answers(server) as address:
            client = Client(address)
            for _ in range(2):
                assert client.chat(CHAT, 1, thinking).text == "a"
        told = [body.get("chat_template_kwargs") for body in server.asked]
        said = {"thinking": thinking, "enable_thinking": thinking}
        assert told == ([said, said] if server.can_be_told else [said, None, None])


def test_a_server_whose_answers_vary():
    assert run(Scripted(noise=True)).repeats is False


def test_without_echo_answers_alone_are_compared():
    seen = run(Scripted(echo=False))
    assert not seen.scores_prompts and seen.replies["decode"].logprobs


def test_without_logprobs_there_are_texts():
    seen = run(Scripted(logprobs=False))
    assert not seen.gives_logprobs and seen.replies["decode"].text == "ab" and seen.replies["chat"].text == "a"
    assert not seen.scores_prompts


def test_without_token_ids_prompts_go_through_the_chat():
    server = Scripted(token_ids=False)
    seen = run(server)
    assert not seen.takes_token_ids and seen.replies["decode"].tokens == ("a",) and "score" in seen.refusals


def test_without_a_chat_the_model_is_still_judged():
    seen = run(Scripted(chats=False))
    assert seen.refusals == {"chat": "status 400: no chat template"} and seen.replies["decode"].logprobs


def test_tokens_in_the_spelling_of_the_tokenizer():
    """mlx-lm 0.32's form works: any of the likeliest stands for the token of a greedy answer."""
    top = [{"token": token, "logprob": logprob} for token, logprob in (("ĠnaÃ¯", -3.0), ("Ġ", -0.1), ("ï", -4.0))]
    block = {"content": [{"token": "ĠnaÃ¯", "logprob": -3.0, "top_logprobs": top}]}
    answer = {"choices": [{"message": {"content": " "}, "logprobs": block}]}
    with serving_answers(Strange(answer)) as address:
        reply = Client(address, "m").chat(CHAT, 1)
    assert (reply.tokens, reply.logprobs, reply.top) == ((" ",), (-0.1,), ({" naï": -3.0, " ": -0.1, "ï": -4.0},))


def test_completions_with_the_log_probabilities_of_a_chat():
    """llama.cpp's form works: it scores no prompts, so echo is ignored."""
    top = [{"token": token, "logprob": logprob} for token, logprob in ((" a", -0.1), ("b", -3.0))]
    block = {"content": [{"token": " a", "logprob": -0.1, "top_logprobs": top}]}
    with serving_answers(Strange({"choices": [{"text": " a", "logprobs": block}]})) as address:
        client = Client(address, "m")
        reply, scored = client.complete([1, 2], 1), client.score([1, 2, 3])
    assert (reply.tokens, reply.logprobs, reply.top) == ((" a",), (-0.1,), ({" a": -0.1, "b": -3.0},))
    assert not scored.tokens and not scored.logprobs


def test_a_server_that_answers_nothing_is_an_error():
    with pytest.raises(ProbeError, match=r"no question; expected answers, but got (?!the server scores no prompts)"):
        run(Scripted(chats=False, token_ids=False))


class Strange:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def completion(self, body: dict[str, Any]) -> Any:
        if self.answer == "slow":
            time.sleep(1)
        return self.answer

    chat = completion


@pytest.mark.parametrize(
    "answer, error",
    [
        ([], "expected a JSON object"),
        ({}, "expected a field choices"),
        ({"choices": []}, "expected a field choices"),
        ({"choices": ["text"]}, "expected a field choices"),
        ("slow", "has not answered within 0.3 seconds; expected an answer"),
    ],
    ids=str,
)
def test_nonsense_is_one_line(answer, error):
    with serving_answers(Strange(answer)) as address, pytest.raises(ProbeError, match=error) as caught:
        Client(address, timeout=0.3 if answer == "slow" else 30).complete([1, 2], 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "block",
    [
        {"tokens": "ab", "token_logprobs": [1]},
        {"tokens": ["a"], "token_logprobs": []},
        {"tokens": ["a", "b"], "token_logprobs": [1, 2], "top_logprobs": [{}]},
        ["a"],
        7,
    ],
    ids=str,
)
def test_lists_that_do_not_fit_together_are_no_logprobs(block):
    with serving_answers(Strange({"choices": [{"text": "a", "logprobs": block}], "usage": 3})) as address:
        reply = Client(address).complete([1, 2], 1)
    assert (reply.tokens, reply.logprobs, reply.text, reply.prompt_tokens) == ((), (), "a", None)


def test_a_refusal_has_the_servers_reason():
    with serving_answers(Scripted(chats=False)) as address, pytest.raises(Refused, match="400: no chat template"):
        Client(address, "m").chat(CHAT, 1)


def test_without_logprobs_no_deviations_are_listed():
    with serving_answers(Scripted(logprobs=False)) as address:
        result = CliRunner().invoke(app, ["probe", "--base-url", address])
    assert result.exit_code == 1 and "Deviations" not in result.stdout
    assert "Wrong answers:\n  decode-120: text is 'ab'; expected" in result.stdout


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["--base-url", "localhost:8000"], "expected an address that begins with http:// or https://"),
        (["--base-url", "http://127.0.0.1:9/v1"], "cannot be asked: "),
        (["--base-url", "http://[::1/v1"], "cannot be asked: "),
        (["--base-url", "http://x", "--checkpoint", "../demo"], "expected one of "),
    ],
    ids=["scheme", "nobody there", "no address", "checkpoint"],
)
def test_mistakes_of_the_command_line(arguments, error):
    result = CliRunner().invoke(app, ["probe", *arguments])
    assert isinstance(result.exception, ValueError) and error in str(result.exception)
    assert "\n" not in str(result.exception)
