"""What a caller asks of a model, checked: prompts, conversations and options."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from lcspec.chat_template import ChatTemplate
from lcspec.checks import check_whole
from lcspec.errors import PromptError, TooLongError
from lcspec.llama import Model
from lcspec.sampling import SamplingParams


class Prompts:
    """Makes prompts for a model out of texts and conversations.

    Args:
        model: the model.
        n_ctx: tokens that prompt and text may have together.
    """

    def __init__(self, model: Model, n_ctx: int) -> None:
        self._model = model
        self._n_ctx = n_ctx

    def tokens(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt that can be continued.

        Raises:
            PromptError: it is empty or no prompt; TooLongError: it leaves no room in the context.
        """
        if isinstance(prompt, str):
            tokens = self._model.tokenize(prompt)
            if not tokens and self._model.bos is not None:
                tokens = [self._model.bos]
        else:
            tokens = token_ids(prompt)
            for token in tokens:
                self._model.check_token(token)
        if not tokens:
            raise PromptError("the prompt is empty")
        if len(tokens) >= self._n_ctx:
            raise TooLongError(len(tokens), self._n_ctx)
        return tokens

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to where the assistant's answer begins.

        Raises:
            PromptError: the model has no chat template, or it refuses the messages.
        """
        text = self.template.render(messages)
        has_bos = self._bos_text != "" and text.startswith(self._bos_text)
        return self._model.tokenize(text, add_special=not has_bos)

    @cached_property
    def _bos_text(self) -> str:
        return "" if self._model.bos is None else self._model.token_text(self._model.bos)

    @cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template."""
        source = self._model.chat_template
        if source is None:
            raise PromptError(
                f"{self._model.path.name} has no chat template, so it can only continue a text: "
                "use generate, on the command line with --raw"
            )
        eos = "" if self._model.eos is None else self._model.token_text(self._model.eos)
        return ChatTemplate(source, bos=self._bos_text, eos=eos)

    def close(self) -> None:
        """End the process that renders the chat template, if there is one."""
        if "template" in vars(self):
            self.template.close()


def check_options(
    model: Model, *, max_tokens: int | None, stop: object, sampling: SamplingParams, logprobs: int | None
) -> list[str]:
    """Make sure that options of a generation are in range, and return the stop strings.

    Raises:
        PromptError: one is not.
    """
    if max_tokens is not None:
        check_whole("max_tokens", max_tokens, 0)
    texts = _stop_strings(stop)
    if not isinstance(sampling, SamplingParams):
        raise PromptError(f"sampling must be SamplingParams, not {type(sampling).__name__}")
    if logprobs is not None:
        check_whole("logprobs", logprobs, 0, model.n_vocab)
    for token in sampling.logit_bias:
        model.check_token(token)
    if sum(bias == -math.inf for bias in sampling.logit_bias.values()) == model.n_vocab:
        raise PromptError("logit_bias forbids every token")
    return texts


def token_ids(prompt: object) -> list[int]:
    """Return a prompt of token ids as a list.

    Raises:
        PromptError: it is something else.
    """
    try:
        if isinstance(prompt, Iterable) and not isinstance(prompt, bytes | bytearray | Mapping):
            return [operator.index(token) for token in prompt]
    except TypeError:
        pass
    raise PromptError(
        f"a prompt is a text or a sequence of token ids, not {type(prompt).__name__} (messages: use chat)"
    )


def _stop_strings(stop: object) -> list[str]:
    texts = [stop] if isinstance(stop, str) else list(stop) if isinstance(stop, Iterable) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        raise PromptError("stop strings must be texts that are not empty")
    return texts  # type: ignore[return-value]
