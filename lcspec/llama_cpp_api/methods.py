"""The methods of llama_cpp.Llama that write text, with its arguments, defaults and dictionaries."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from lcspec.errors import PromptError
from lcspec.llama import Model
from lcspec.llama_cpp_api.answers import Answer
from lcspec.llama_cpp_api.arguments import (
    infill_prompt,
    refuse_unsupported,
    sampling_params,
    stop_strings,
    token_limit,
)
from lcspec.llama_cpp_api.scores import chat_scores
from lcspec.llama_cpp_api.types import (
    CreateChatCompletionResponse,
    CreateChatCompletionStreamResponse,
    CreateCompletionResponse,
    CreateCompletionStreamResponse,
)
from lcspec.llama_cpp_api.writers import ChatWriter, CompletionWriter, chat_heading, heading
from lcspec.sampling import SamplingParams
from lcspec.stream import Stream


class Engine(Protocol):
    """What these methods are added to."""

    @property
    def target(self) -> Model:
        """The model whose text is wanted."""

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = ...,
        stop: Sequence[str] = ...,
        sampling: SamplingParams = ...,
        logprobs: int | None = ...,
    ) -> Stream:
        """Continue a prompt."""

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the tokens of a conversation."""


class LlamaCppMethods:
    """Methods with the signatures of `llama_cpp.Llama` (llama-cpp-python 0.3) and answers with its keys.

    What is different:
        - what is not supported (tools, grammars, JSON mode, processors, mirostat, ...) raises `PromptError` unless
          it is left at its default;
        - a chunk of a stream can be longer than a token, unless log-probabilities were asked for, and `echo` works
          in streams, too; one that is not read to its end has to be closed before the thread writes again;
        - log-probabilities need no `logits_all`; of prompts (`echo`) there are none, and `logprobs=True` alone
          gives those of the tokens themselves;
        - `max_tokens` is kept to, where llama_cpp goes on to the end of a character; the text then ends with U+FFFD;
        - penalties count the prompt's tokens, as in llama.cpp's own programs;
        - a seed gives the same text again, but not the one that llama_cpp draws with it.
    """

    def create_completion(
        self: Engine,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        grammar: Any = None,
        logit_bias: Mapping[int, float] | None = None,
    ) -> CreateCompletionResponse | Iterator[CreateCompletionStreamResponse]:
        """Continue a text, as `llama_cpp.Llama.create_completion` does.

        `prompt` is a text or token ids, and `suffix` a text that is to follow what is written, for models that can
        fill in. At most `max_tokens` are written, with None or 0 as many as the context holds, up to one of the
        strings of `stop`. Parameters of sampling are those of `SamplingParams`; at temperature 0 only biases and
        penalties matter, and the seed None or -1 draws one. `logprobs` gives the log-probability of each token, and
        of this many of the likeliest; `echo` begins with the prompt. With `stream` an iterator over chunks is
        returned. `model` is what the answer calls the model, by default its file. The others are not supported.

        Raises:
            PromptError: the prompt is empty or does not fit, or an argument is out of range or not supported.
            BusyError: this thread has an unfinished stream.
        """
        refuse_unsupported(
            tfs_z=tfs_z,
            mirostat_mode=mirostat_mode,
            mirostat_tau=mirostat_tau,
            mirostat_eta=mirostat_eta,
            stopping_criteria=stopping_criteria,
            logits_processor=logits_processor,
            grammar=grammar,
        )
        if echo and logprobs is not None:
            raise PromptError("echo and logprobs are not supported together: a prompt's tokens are not scored")
        stop = stop_strings(stop)
        if isinstance(prompt, Iterator):
            prompt = list[Any](prompt)  # it is read twice
        writing = self.stream(
            prompt if suffix is None else infill_prompt(self.target, prompt, suffix),
            max_tokens=token_limit(max_tokens),
            stop=stop,
            sampling=sampling_params(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                typical_p=typical_p,
                repeat_penalty=repeat_penalty,
                frequency_penalty=frequency_penalty,
                presence_penalty=presence_penalty,
                seed=seed,
                logit_bias=logit_bias,
            ),
            logprobs=logprobs,
        )
        text = prompt if isinstance(prompt, str) else self.target.detokenize(prompt).decode("utf-8", "replace")
        scored = logprobs is not None
        head = heading(str(self.target.path) if model is None else model)
        writer = CompletionWriter(self.target, head, prompt=text, echo=echo, scored=scored)
        answer = Answer(writing, self.target, writer, stop=stop, scored=scored)
        return answer.chunks() if stream else answer.whole()

    __call__ = create_completion

    def create_chat_completion(
        self: Engine,
        messages: Sequence[Mapping[str, Any]],
        functions: Any = None,
        function_call: Any = None,
        tools: Any = None,
        tool_choice: Any = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = (),
        seed: int | None = None,
        response_format: Any = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Any = None,
        grammar: Any = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
    ) -> CreateChatCompletionResponse | Iterator[CreateChatCompletionStreamResponse]:
        """Answer messages, as `llama_cpp.Llama.create_chat_completion` does.

        `messages` are mappings with 'role' (system, user or assistant) and 'content'. `logprobs` gives the
        log-probability of each token, and `top_logprobs` of this many of the likeliest. The other arguments are
        those of `create_completion`; tools, functions and formats of the response are not supported.

        Raises:
            PromptError: the messages do not fit, or an argument is out of range or not supported.
            BusyError: this thread has an unfinished stream.
        """
        refuse_unsupported(
            functions=functions,
            function_call=function_call,
            tools=tools,
            tool_choice=tool_choice,
            response_format=response_format,
            tfs_z=tfs_z,
            mirostat_mode=mirostat_mode,
            mirostat_tau=mirostat_tau,
            mirostat_eta=mirostat_eta,
            logits_processor=logits_processor,
            grammar=grammar,
        )
        stop = stop_strings(stop)
        writing = self.stream(
            self.chat_prompt(messages),
            max_tokens=token_limit(max_tokens),
            stop=stop,
            sampling=sampling_params(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                typical_p=typical_p,
                repeat_penalty=repeat_penalty,
                frequency_penalty=frequency_penalty,
                presence_penalty=presence_penalty,
                seed=seed,
                logit_bias=logit_bias,
            ),
            logprobs=(top_logprobs or 0) if logprobs else None,
        )
        head = chat_heading(str(self.target.path) if model is None else model)
        writer = ChatWriter(head, scores=partial(chat_scores, self.target) if logprobs else None)
        answer = Answer(writing, self.target, writer, stop=stop, scored=bool(logprobs))
        return answer.chunks() if stream else answer.whole()
