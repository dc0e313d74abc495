"""POST /v1/completions: texts that go on."""

from starlette.requests import Request
from starlette.responses import Response

from lcspec.batching import BatchingEngine
from lcspec.errors import TooLongError
from lcspec.llama_cpp_api.arguments import infill_prompt
from lcspec.llama_cpp_api.writers import CompletionWriter, heading
from lcspec.server.answers import Wanted
from lcspec.server.asking import check_length, requests_of
from lcspec.server.endpoint import respond
from lcspec.server.errors import ApiError
from lcspec.server.requests import CompletionRequest

_DEFAULT_LENGTH = 16  # OpenAI's


async def completions(request: Request) -> Response:
    """Continue texts."""
    return await respond(request, CompletionRequest, _prepare)


def _prepare(engine: BatchingEngine, asked: CompletionRequest, name: str) -> Wanted:
    n = asked.n or 1
    if asked.best_of not in (None, n):
        raise ApiError(400, "best_of is not supported: leave it out", "unsupported_parameter", "best_of")
    if asked.echo and asked.logprobs is not None:
        message = "echo and logprobs are not supported together: a prompt's tokens are not scored"
        raise ApiError(400, message, "unsupported_parameter", "echo")
    prompts = [_tokens(engine, prompt, asked.suffix) for prompt in asked.prompts]
    limit = _DEFAULT_LENGTH if asked.max_tokens is None else asked.max_tokens
    requests = requests_of(engine, asked, prompts, max_tokens=limit, logprobs=asked.logprobs)
    head = heading(name)
    scored = asked.logprobs is not None
    texts = [_text(engine, prompt) for prompt in asked.prompts for _ in range(n)]
    writers = [
        CompletionWriter(engine.target, head, prompt=text, echo=bool(asked.echo), scored=scored, index=i)
        for i, text in enumerate(texts)
    ]
    return Wanted(requests=requests, writers=writers, n=n, scored=scored, usage=asked.wants_usage)


def _tokens(engine: BatchingEngine, prompt: str | list[int], suffix: str | None) -> list[int]:
    for text in (prompt, suffix):
        if isinstance(text, str):
            check_length(engine, text)
    if not isinstance(prompt, str) and len(prompt) >= engine.n_ctx:
        raise TooLongError(len(prompt), engine.n_ctx)
    if suffix is None:
        return engine.tokenize(prompt)
    return engine.tokenize(infill_prompt(engine.target, prompt, suffix))


def _text(engine: BatchingEngine, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else engine.target.detokenize(prompt).decode("utf-8", "replace")
