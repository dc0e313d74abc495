"""What a target writes by itself: the text by which its drafts are judged."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lcspec.engine import SpeculativeLM
from lcspec.errors import PromptError

_PROMPT = 64  # tokens of a given text that the target goes on from
_TEXTS = 64  # places of given texts that are looked at

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


def own_prompts(lm: SpeculativeLM) -> Iterator[list[int]]:
    """Yield built-in prompts of different kinds, as questions where the model has a chat template."""
    for text in _OWN:
        try:
            yield lm.chat_prompt([{"role": "user", "content": text}])
        except PromptError:
            yield lm.target.tokenize(text)


def prompts_of_text(lm: SpeculativeLM, texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the beginnings of passages that are spread evenly over texts.

    Raises:
        PromptError: there are too few words for a prompt.
    """
    tokens = [token for text in texts for token in lm.target.tokenize(text, add_special=False)]
    if len(tokens) < _PROMPT:
        raise PromptError(f"the texts have {len(tokens)} tokens, too few to search by: {_PROMPT} are the least")
    places = min(_TEXTS, len(tokens) // _PROMPT)
    start = [lm.target.bos] if lm.target.adds_bos and lm.target.bos is not None else []
    for i in range(places):
        first = (len(tokens) - _PROMPT) * i // max(places - 1, 1)
        yield start + tokens[first : first + _PROMPT]


def written_samples(
    lm: SpeculativeLM, prompts: Iterator[list[int]], count: int, tokens: int, longest_prompt: int
) -> list[Sample]:
    """Let the target write behind prompts, until there are `count` samples of up to `tokens` tokens each."""
    samples: list[Sample] = []
    for prompt in prompts:
        if len(samples) == count:
            break
        if not 2 <= len(prompt) <= longest_prompt:
            continue
        written = lm.generate(prompt, max_tokens=tokens).tokens
        if len(written) > 1:
            samples.append(Sample(tuple(prompt), tuple(written)))
    if not samples:
        raise PromptError("the target writes nothing behind the prompts that a search would go by")
    return samples


def text_digest(samples: Sequence[Sample]) -> str:
    """Return the SHA-256 of what a search goes by."""
    return hashlib.sha256(json.dumps([[sample.prompt, sample.written] for sample in samples]).encode()).hexdigest()
