"""POST /v1/chat/completions: answers to conversations."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from lcspec.batching import BatchingEngine
from lcspec.llama_cpp_api.scores import chat_scores_with_bytes
from lcspec.llama_cpp_api.writers import ChatWriter, chat_heading
from lcspec.server.answers import Wanted
from lcspec.server.asking import check_length, requests_of
from lcspec.server.endpoint import respond
from lcspec.server.errors import ApiError
from lcspec.server.requests import ChatRequest


async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    return await respond(request, ChatRequest, _prepare)


def _prepare(engine: BatchingEngine, asked: ChatRequest, name: str) -> Wanted:
    if asked.top_logprobs and not asked.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", "invalid_value", "top_logprobs")
    messages = [message.as_dict() for message in asked.messages]
    check_length(engine, "".join(message["content"] for message in messages))
    prompt = engine.chat_prompt(messages)
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
    requests = requests_of(engine, asked, [prompt], max_tokens=limit, logprobs=logprobs)
    head = chat_heading(name)
    scores = partial(chat_scores_with_bytes, engine.target) if asked.logprobs else None
    return Wanted(
        requests=requests,
        writers=[ChatWriter(head, scores=scores, index=i) for i in range(len(requests))],
        n=len(requests),
        scored=bool(asked.logprobs),
        usage=asked.wants_usage,
    )
