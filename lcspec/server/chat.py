"""POST /v1/chat/completions: answers to conversations."""

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from lcspec.batching import BatchingEngine
from lcspec.errors import LcspecError
from lcspec.llama_cpp_api.scores import chat_scores_with_bytes
from lcspec.llama_cpp_api.writers import ChatWriter, chat_heading
from lcspec.server.answers import Wanted, answer
from lcspec.server.asking import check_length, refuse, requests_of
from lcspec.server.body import read_body
from lcspec.server.errors import ApiError
from lcspec.server.requests import ChatRequest
from lcspec.server.service import LOG, Service
from lcspec.server.texts import answer_of


async def chat_completions(request: Request) -> Response:
    """Answer a conversation.

    Raises:
        ApiError: the request is wrong, or can't be served now.
    """
    service: Service = request.app.state.service
    engine = service.engine
    asked = await read_body(request, ChatRequest)
    refuse(asked, service.settings)
    if asked.top_logprobs and not asked.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", "invalid_value", "top_logprobs")
    if service.settings.logs_prompts:
        LOG.info("messages: %s", [message.as_dict() for message in asked.messages])
    try:
        wanted = await run_in_threadpool(_wanted, engine, asked, service.settings.name)
    except LcspecError as error:
        raise answer_of(error) from error
    return await answer(service, engine.target, wanted, stream=bool(asked.stream), receive=request.receive)


def _wanted(engine: BatchingEngine, asked: ChatRequest, name: str) -> Wanted:
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
