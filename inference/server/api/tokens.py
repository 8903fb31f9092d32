"""The list of models, and the conversion between text and token ids."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from .context import ApiContext
from .conversations import conversation_ids
from .errors import ApiError, declared
from .guard import BoundedRoute
from .protocol import ConversationFields, DetokenizeRequest, TokenizeRequest
from .responses import DetokenizeResponse, ModelCard, ModelList, TokenizeResponse, TokenizerInfo


def tokens_router(context: ApiContext) -> APIRouter:
    router = APIRouter(route_class=BoundedRoute)

    def card(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": context.created,
            "owned_by": "deepseek-v32",
            "root": context.service.llm.checkpoint,
            "max_model_len": context.max_model_len,
        }

    @router.get("/v1/models/", include_in_schema=False)
    @router.get("/v1/models", tags=["OpenAI"], response_model=ModelList, responses=declared())
    async def list_models() -> JSONResponse:
        """The one model that is served, under each of its names."""
        return JSONResponse({"object": "list", "data": [card(name) for name in (context.model_name, *context.aliases)]})

    @router.get("/v1/models/{model:path}", tags=["OpenAI"], response_model=ModelCard, responses=declared(404))
    async def retrieve_model(model: str) -> JSONResponse:
        context.check_model(model)
        return JSONResponse(card(model))

    @router.post("/tokenize", tags=["tokens"], response_model=TokenizeResponse, responses=declared(404))
    async def tokenize(body: TokenizeRequest) -> JSONResponse:
        """The token ids of a text, or of a conversation as the model would see it, if the context can hold them."""
        context.check_model(body.model)
        if body.messages is not None:
            template = body.chat_template_kwargs
            conversation = ConversationFields.model_construct(
                messages=body.messages, tools=body.tools, chat_template_kwargs=template
            )
            encode = partial(conversation_ids, context, conversation)
        else:
            text = body.prompt or ""
            is_token = text in context.tokenizer.special_ids  # so lm_eval asks for the id of a control token
            parses = is_token if body.parse_special_tokens is None else body.parse_special_tokens
            encode = partial(context.text_ids, text, body.add_special_tokens, parses)
        tokens = await context.encoding.run(body.characters, encode)
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": context.max_model_len})

    @router.get("/tokenizer_info", tags=["tokens"], response_model=TokenizerInfo, responses=declared())
    async def tokenizer_info() -> JSONResponse:
        """The tokens around texts and the chat template, as transformers' tokenizer_config.json names them."""
        tokenizer = context.tokenizer
        bos, eos = (
            None if token is None else tokenizer.decode([token], skip_special_tokens=False)
            for token in (tokenizer.bos_id, next(iter(tokenizer.eos_ids), None))
        )
        info: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "pad_token": None,
        }
        info |= {"model_max_length": context.max_model_len, "chat_template": tokenizer.chat_template}
        return JSONResponse(info)

    @router.post("/detokenize", tags=["tokens"], response_model=DetokenizeResponse, responses=declared(404))
    async def detokenize(body: DetokenizeRequest) -> JSONResponse:
        """The text of token ids, control tokens included."""
        context.check_model(body.model)
        size = context.service.llm.config.vocab_size
        if (largest := max(body.tokens, default=0)) >= size:
            raise ApiError(
                400, f"tokens holds {largest}; expected ids below {size}, the size of the vocabulary", "tokens"
            )
        decode = partial(context.tokenizer.decode, body.tokens, skip_special_tokens=False)
        return JSONResponse({"prompt": await context.encoding.run(len(body.tokens), decode)})

    return router
