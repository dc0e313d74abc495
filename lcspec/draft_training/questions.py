"""What a target asks itself, so that it writes the texts that a draft head learns from."""

from collections.abc import Container, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from lcspec.draft_training.sampling import sampled
from lcspec.errors import ModelError
from lcspec.llama import Chunk, Model, SharedContext, common_prefix_length
from lcspec.prompts import Prompts

AT_ONCE = 16
"""Questions that are written at once."""

_SHORTEST, _LENGTH = 16, 160  # tokens that a question may have at the most
_BEGUN_LENGTH = 24  # tokens of a text's beginning, where there is no chat template
_UNLIKELY = 4.0  # what has a logit so much below the largest is not sampled
_BEGINNINGS = (
    *("", "", "", "", "", "", "", "", "", "", "", ""),  # the target's own
    *("What", "Who", "When", "Where", "Why", "How", "How many", "If", "In", "The", "A", "There are", "Given"),
    *("Write", "Write a function that", "Write a short story about", "Explain", "Describe", "Compare", "Calculate"),
    *("Translate", "Translate to English:", "Summarize:", "Summarize the following text:", "Rewrite", "Edit"),
    *("Solve this problem:", "Question:", "Read the following paragraph and answer", "Imagine you are"),
)


@dataclass(frozen=True)
class Frame:
    """What stands around a question in a prompt.

    Attributes:
        before: tokens before it.
        behind: tokens behind it.
        length: most tokens between them.
    """

    before: list[int]
    behind: list[int]
    length: int


def frame_of(model: Model) -> Frame:
    """Return what a model's chat template puts around a question; next to nothing where there is no template."""
    nothing = [model.bos] if model.bos is not None else model.tokenize("\n")
    if model.chat_template is None:
        return Frame(nothing, [], _BEGUN_LENGTH)
    with closing(Prompts(model, model.n_ctx_train)) as prompts:
        one, other = (prompts.chat([{"role": "user", "content": content}]) for content in ("Apple", "0 zebras"))
    n_before, n_behind = common_prefix_length(one, other), common_prefix_length(one[::-1], other[::-1])
    return Frame(one[:n_before] or nothing, one[len(one) - n_behind :], _LENGTH)


def questions(
    model: Model, seed: int, done: Container[int], most: int, threads: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield prompts without end that a target wrote itself, with their numbers.

    A chat model that is given what comes before a question writes one. (Xu et al. 2024, "Magpie".) For variety, some
    begin with given words. Without a chat template, a prompt is the beginning of a text.

    Args:
        model: the target.
        seed: decides what is sampled.
        done: numbers of prompts that are not wanted.
        most: most tokens of a prompt.
        threads: threads to evaluate with.

    Raises:
        ModelError: no question has room in so many tokens.
    """
    frame = frame_of(model)
    beginnings = [model.tokenize(text, add_special=False) if text else [] for text in _BEGINNINGS]
    n_begun = len(frame.before) + max(map(len, beginnings))
    if (room := most - n_begun - len(frame.behind)) < _SHORTEST:
        raise ModelError(f"{model.path.name} has too short a context to write texts for a draft head")
    frame = replace(frame, length=min(frame.length, room))
    n_ctx = n_begun + frame.length
    wanted = (number for number in count() if number not in done)
    with SharedContext(model, (AT_ONCE + 1) * n_ctx, AT_ONCE + 1, threads=threads, apart=True) as context:
        if len(frame.before) > 1:
            context.prefill(AT_ONCE, frame.before[:-1])
        while True:
            numbers = list(islice(wanted, AT_ONCE))
            random = [np.random.default_rng((seed, number)) for number in numbers]
            begun = [beginnings[int(one.integers(len(beginnings)))] for one in random]
            for number, question in zip(numbers, _written(context, frame, begun, random), strict=True):
                if question:
                    yield number, [*frame.before, *question, *frame.behind]


def _written(
    context: SharedContext, frame: Frame, begun: list[list[int]], random: list[np.random.Generator]
) -> list[list[int]]:
    """Return questions that were written together, each behind its beginning."""
    found = [list(tokens) for tokens in begun]
    going: list[Chunk] = []

    def go_on(i: int, logits: NDArray[np.float32]) -> None:
        token = sampled(logits, 1.0, random[i], _UNLIKELY)
        if context.model.is_eog(token) or token in frame.behind[:1]:
            return
        found[i].append(token)
        if len(found[i]) - len(begun[i]) < frame.length:
            going.append(Chunk(i, [token], 1))

    for i, tokens in enumerate(begun):
        context.free(i)
        if len(frame.before) > 1:
            context.copy(AT_ONCE, i, len(frame.before) - 1)
        go_on(i, context.prefill(i, [frame.before[-1], *tokens]))
    while going:
        chunks, going = going, []
        for chunk, (logits,) in zip(chunks, context.evaluate(chunks), strict=True):
            go_on(chunk.sequence, logits)
    return found
