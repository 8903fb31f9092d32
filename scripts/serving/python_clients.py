"""One use of a Python client against a running server, for clients.py: python python_clients.py NAME URL MODEL.

What a model says is not checked, only that whole answers, streams, forms and calls arrive as the client expects them. Each use
imports only its own client, because every client may have an environment to itself.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

URL, MODEL = "", ""
QUESTION = "Which animal is it?"
ASK = [{"role": "user", "content": QUESTION}]
ANIMAL = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}},
    "required": ["kind"],
    "additionalProperties": False,
}


def adopt(kind: Literal["cat", "dog"]) -> str:
    """Adopt an animal."""
    return f"adopted a {kind}"


def openai() -> str:
    from openai import OpenAI

    client = OpenAI(base_url=f"{URL}/v1", api_key="any", max_retries=0)
    tools: Any = [{"type": "function", "function": {"name": "adopt", "parameters": ANIMAL}}]
    messages: Any = ASK
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, tools=tools, tool_choice="required", max_tokens=200
    )
    calls = answer.choices[0].message.tool_calls
    assert calls, answer
    messages = [*ASK, answer.choices[0].message, {"role": "tool", "tool_call_id": calls[0].id, "content": "done"}]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in calls[1:]]
    chunks = list(client.chat.completions.create(model=MODEL, messages=messages, max_tokens=20, stream=True))
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    with client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=20) as stream:
        assert [event.type for event in stream][-1] in ("response.completed", "response.incomplete")
    return "chat with a call and its result, streams, responses"


def openai_agents() -> str:
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key="any", max_retries=0)
    settings = agents.ModelSettings(max_tokens=200, tool_choice="required")
    for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
        agent = agents.Agent(
            name="a", model=kind(MODEL, client), tools=[agents.function_tool(adopt)], model_settings=settings
        )
        result = agents.Runner.run_sync(agent, QUESTION, max_turns=4)
        assert any(item.type == "tool_call_output_item" for item in result.new_items), result.new_items
    return "an agent with a tool, over responses and chat"


def pydantic_ai() -> str:
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Animal(BaseModel):
        kind: Literal["cat", "dog"]

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="any"))
    agent = Agent(model, output_type=Animal)
    assert agent.run_sync(QUESTION, model_settings={"max_tokens": 300}).output.kind in ("cat", "dog")
    return "an agent with a typed output"


def langgraph() -> str:
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    tools = [tool(adopt)]
    model = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key="any", max_completion_tokens=200)  # type: ignore[arg-type]
    asks, answers = model.bind_tools(tools, tool_choice="required"), model.bind(max_tokens=20)
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [asks.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("answer", lambda state: {"messages": [answers.invoke(state["messages"])]})
    for first, second in ((START, "ask"), ("ask", "tools"), ("tools", "answer"), ("answer", END)):
        graph.add_edge(first, second)
    kinds = [message.type for message in graph.compile().invoke({"messages": [("user", QUESTION)]})["messages"]]
    assert kinds[:3] == ["human", "ai", "tool"] and kinds[-1] == "ai", kinds
    return "a graph with a node of tools"


def llama_index() -> str:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    given: Any = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0}
    model = OpenAILike(model=MODEL, api_base=f"{URL}/v1", api_key="any", max_tokens=200, **given)
    assert [piece.delta for piece in model.stream_chat([ChatMessage(role="user", content=QUESTION)])]
    answer = model.chat_with_tools([FunctionTool.from_defaults(adopt)], QUESTION, tool_required=True)
    assert model.get_tool_calls_from_response(answer)[0].tool_kwargs["kind"] in ("cat", "dog")
    return "a stream, a call"


def inspect_ai() -> str:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate

    model = get_model(
        f"openai-api/here/{MODEL}", base_url=f"{URL}/v1", api_key="any", config=GenerateConfig(max_tokens=20)
    )
    task = Task(dataset=[Sample(QUESTION, target="cat")], solver=generate(), scorer=includes())
    [log] = eval(task, model=model, log_dir="logs", display="none")
    assert log.status == "success", str(log.error)[:300]
    return "an evaluation"


def anthropic() -> str:
    import anthropic

    client = anthropic.Anthropic(base_url=URL, api_key="any", max_retries=0)
    given: Any = {"model": MODEL, "messages": ASK, "max_tokens": 200}
    with client.messages.stream(**given, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
        assert stream.get_final_message().content[0].type in ("thinking", "text")
    tool = anthropic.beta_tool(adopt)
    runner = client.beta.messages.tool_runner(**given, tools=[tool], tool_choice={"type": "any"}, max_iterations=2)
    assert len(list(runner)) == 2
    assert client.messages.count_tokens(model=MODEL, messages=given["messages"]).input_tokens > 0
    return "a stream with thinking, the loop of calls, count_tokens"


def litellm() -> str:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it loads a table from the network
    import litellm

    given: Any = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{URL}/v1", "api_key": "any", "messages": ASK}
    assert litellm.completion(**given, max_tokens=20).choices[0].finish_reason in ("stop", "length")
    assert list(asyncio.run(_collected(litellm.acompletion(**given, max_tokens=20, stream=True))))
    return "a completion, a stream"


async def _collected(stream: Any) -> list[Any]:
    return [chunk async for chunk in await stream]


USES: dict[str, Callable[[], str]] = {
    "openai": openai,
    "openai-agents": openai_agents,
    "pydantic-ai-slim": pydantic_ai,
    "langgraph": langgraph,
    "llama-index-llms-openai-like": llama_index,
    "inspect-ai": inspect_ai,
    "anthropic": anthropic,
    "litellm": litellm,
}

if __name__ == "__main__":
    name, URL, MODEL = sys.argv[1:]
    print(USES[name]())
