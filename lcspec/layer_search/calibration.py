"""What a target writes by itself: the text by which its drafts are judged."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from lcspec.engine import SpeculativeLM
from lcspec.errors import PromptError
from lcspec.gguf_edit import target_digest
from lcspec.llama import Header
from lcspec.measurements import Measurements

_log = logging.getLogger(__name__)

_KIND = "written"
_SEARCHED, _SEARCHED_TOKENS = 8, 48  # samples that a search goes by, and the tokens of each
_JUDGED, _JUDGED_TOKENS = 6, 64  # samples by which drafts are judged
_PASSAGE = 64  # tokens of a given text that the target goes on from
_PASSAGES = 32  # of given texts

LONGEST_PROMPT = 192
"""Tokens of the longest prompt."""

LONGEST_SAMPLE = LONGEST_PROMPT + max(_SEARCHED_TOKENS, _JUDGED_TOKENS)
"""Tokens of the longest sample with its prompt."""

_OWN = (
    "Write a Python function that counts how often each word occurs in a file, and explain it.",
    "Explain to a beginner why the sky is blue.",
    "Write a polite e-mail to a colleague, asking to move our meeting from Tuesday to Thursday afternoon.",
    "List five things to check before a long journey by bicycle, with a sentence on each.",
    "A shop sells pens at 3 for 2 euros. How much do 12 pens cost? Think step by step.",
    "Begin a short story about a baker who finds a letter in a sack of flour.",
    "Give me a JSON object that describes a book: title, author, year, and three keywords.",
    "Compare trains and aeroplanes for a trip of 600 kilometres: time, price, comfort.",
    "Fix the mistakes in this sentence, and say what was wrong: Him and me was going too the market yesterday.",
    "Write a SQL query that returns the five customers who spent most last month.",
    "What happens in a computer between pressing a key and seeing the letter on the screen?",
    "Summarize in three sentences how a bill becomes a law in a parliament.",
    "Write a shell command that finds all files larger than 100 MB, and explain its parts.",
    "Translate into French: The library opens at nine and closes at six on weekdays.",
    "Describe the life of a honey bee, from the egg to its last day.",
    "Write a unit test for a function that tells whether a year is a leap year.",
    "What is the difference between weather and climate?",
    "Suggest a plan for learning to play the guitar within six months.",
    "A train leaves at 14:25 and arrives at 17:10. How long does the journey take?",
    "Write a review of a restaurant where the food was good and the service was slow.",
    "Explain what a mortgage is, and what to watch out for.",
    "Refactor this code so that it has no global variable: total = 0\ndef add(x):\n    global total\n    total += x",
    "Name the planets of the solar system, with one fact about each.",
    "Write a poem of eight lines about the first snow of the year.",
)


@dataclass(frozen=True)
class Sample:
    """A prompt and what the target wrote behind it, greedily, as tokens."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]


class Texts:
    """What a target writes behind prompts of given texts or built-in ones, written once and then remembered.

    Args:
        target: the target.
        texts: texts whose passages are prompts; none for built-in prompts.
        threads: threads that evaluate.
    """

    def __init__(self, target: Header, texts: Sequence[str], threads: int) -> None:
        self._target = target
        self._texts = texts
        self._threads = threads
        self._measurements = Measurements(
            {"target": target_digest(target), "texts": sha256(json.dumps([*texts] or _OWN).encode()).hexdigest()}
        )

    @cached_property
    def searched(self) -> tuple[Sample, ...]:
        """What blocks are searched by."""
        return self._written(0, _SEARCHED, _SEARCHED_TOKENS)

    @cached_property
    def judged(self) -> tuple[Sample, ...]:
        """Other samples, by which drafts are judged."""
        return self._written(1, _JUDGED, _JUDGED_TOKENS)

    def _written(self, first: int, count: int, tokens: int) -> tuple[Sample, ...]:
        """Return samples behind every other prompt, so that both parts have prompts of all kinds."""
        part = {"first": first, "count": count, "tokens": tokens}
        samples = _understood(self._measurements.recall(_KIND, **part))
        if not samples:
            _log.info("letting the model write what its drafts are judged by")
            n_ctx = LONGEST_PROMPT + tokens
            with SpeculativeLM(
                self._target.files[0], drafter="none", n_ctx=n_ctx, threads=self._threads, measure=False
            ) as lm:
                prompts = list(_prompts_of_text(lm, self._texts) if self._texts else _own_prompts(lm))
                samples = _written_behind(lm, prompts[first::2] or prompts, count, tokens)
            self._measurements.keep(_KIND, [[sample.prompt, sample.written] for sample in samples], **part)
        return samples


def _understood(kept: Any) -> tuple[Sample, ...]:
    """Return remembered samples; none where they are damaged."""
    with suppress(TypeError, ValueError):
        return tuple(Sample(tuple(map(int, prompt)), tuple(map(int, written))) for prompt, written in kept)
    return ()


def _own_prompts(lm: SpeculativeLM) -> Iterator[list[int]]:
    """Yield built-in prompts of different kinds, as questions where the model has a chat template."""
    for text in _OWN:
        try:
            yield lm.chat_prompt([{"role": "user", "content": text}])
        except PromptError:
            yield lm.target.tokenize(text)


def _prompts_of_text(lm: SpeculativeLM, texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the beginnings of passages that are spread evenly over texts."""
    tokens = [token for text in texts for token in lm.target.tokenize(text, add_special=False)]
    if len(tokens) < _PASSAGE:
        raise PromptError(f"the texts have {len(tokens)} tokens, too few to search by: {_PASSAGE} are the least")
    places = min(_PASSAGES, len(tokens) // _PASSAGE)
    start = [lm.target.bos] if lm.target.adds_bos and lm.target.bos is not None else []
    for i in range(places):
        first = (len(tokens) - _PASSAGE) * i // max(places - 1, 1)
        yield start + tokens[first : first + _PASSAGE]


def _written_behind(lm: SpeculativeLM, prompts: Sequence[list[int]], count: int, tokens: int) -> tuple[Sample, ...]:
    """Let the target write behind prompts, until there are `count` samples of up to `tokens` tokens each."""
    samples: list[Sample] = []
    for prompt in prompts:
        if len(samples) < count and 2 <= len(prompt) <= LONGEST_PROMPT:
            written = lm.generate(prompt, max_tokens=tokens).tokens
            if len(written) > 1:
                samples.append(Sample(tuple(prompt), tuple(written)))
    if not samples:
        raise PromptError("the model writes nothing behind the prompts that drafts would be judged by")
    return tuple(samples)


def text_digest(samples: Sequence[Sample]) -> str:
    """Return the SHA-256 of what a search goes by."""
    return sha256(json.dumps([[sample.prompt, sample.written] for sample in samples]).encode()).hexdigest()
