"""For schemathesis, which loads this file: makes valid bodies servable where the document cannot say what goes together."""

from typing import Any

import schemathesis

# At most one of the first row may be given; the second row depends on other fields.
_EXCLUSIVE = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "response_format")
_DEPENDENT = (
    "tool_choice",
    "best_of",
    "text",
    "previous_response_id",
    "continue_final_message",
    "add_generation_prompt",
)
_QUESTION = {"role": "user", "content": "Hi"}


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keep bodies that are meant to be invalid as they are."""
    body = case.body
    if case.meta is None or not case.meta.generation.mode.is_positive or not isinstance(body, dict):
        return
    for name in (*_EXCLUSIVE, *_DEPENDENT):
        body.pop(name, None)
    if isinstance(body.get("messages"), list):
        body["messages"] = [_QUESTION]
    if body.get("messages") is not None and "prompt" in body:
        del body["prompt"]  # of /tokenize
    if body.get("prompt") == "":
        body["prompt"] = "a"
    if isinstance(body.get("input"), list):
        body["input"] = [{**_QUESTION, "type": "message"}]
    if case.operation.path.startswith("/v1/"):
        most = "max_output_tokens" if "input" in body else "max_tokens"
        body[most] = body.get(most) or 3  # what is tested are requests, not long answers
    if body.get("stream"):
        body.pop("prompt_logprobs", None)
