"""Log-probabilities as llama-cpp-python writes them."""

import codecs
from collections.abc import Iterable

from lcspec.llama import Model
from lcspec.llama_cpp_api.types import (
    ChatCompletionLogprobs,
    ChatCompletionLogprobToken,
    ChatCompletionTopLogprobToken,
    CompletionLogprobs,
)
from lcspec.logprobs import TokenLogprob


class ScoreWriter:
    """Writes the scores of one text's tokens as they come.

    Args:
        model: whose tokens they are.
        offset: characters before the text, which are the prompt's.
    """

    def __init__(self, model: Model, offset: int) -> None:
        self._model = model
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def write(self, scores: Iterable[TokenLogprob]) -> CompletionLogprobs:
        """Return the next tokens' scores; the token itself is always among its likeliest."""
        written = CompletionLogprobs(tokens=[], text_offset=[], token_logprobs=[], top_logprobs=[])
        for score in scores:
            text = self._text(score.token)
            written["tokens"].append(text)
            written["text_offset"].append(self._offset)
            written["token_logprobs"].append(score.logprob)
            top = {self._text(token): logprob for token, logprob in score.top}
            written["top_logprobs"].append({**top, text: score.logprob})
            self._offset += len(self._decoder.decode(self._model.piece(score.token)))
        return written

    def _text(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", "ignore")


def chat_scores(model: Model, scores: Iterable[TokenLogprob]) -> ChatCompletionLogprobs:
    """Return tokens' scores as those of an answer to messages."""
    written = ScoreWriter(model, 0).write(scores)
    columns = zip(written["tokens"], written["token_logprobs"], written["top_logprobs"], strict=True)
    return {"content": [_chat_token(*column) for column in columns], "refusal": None}


def chat_scores_with_bytes(model: Model, scores: Iterable[TokenLogprob]) -> ChatCompletionLogprobs:
    """Return tokens' scores as `chat_scores` does, with their bytes, of which a character may need several tokens'."""

    def entry(token: int, logprob: float) -> ChatCompletionTopLogprobToken:
        piece = model.piece(token)
        return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}

    return {
        "content": [
            {**entry(score.token, score.logprob), "top_logprobs": [entry(*other) for other in score.top]}
            for score in scores
        ],
        "refusal": None,
    }


def _chat_token(token: str, logprob: float, top: dict[str, float]) -> ChatCompletionLogprobToken:
    return {
        "token": token,
        "bytes": None,
        "logprob": logprob,
        "top_logprobs": [{"token": other, "logprob": of_other, "bytes": None} for other, of_other in top.items()],
    }
