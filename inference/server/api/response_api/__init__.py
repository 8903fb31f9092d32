"""POST /v1/responses: OpenAI's newer interface to the same conversations as /v1/chat/completions."""
