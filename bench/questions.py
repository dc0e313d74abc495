"""What benchmarks ask."""

import json
from pathlib import Path

_LONGEST = 600  # characters

OWN = [
    "Write a Python function that merges two sorted lists.",
    "Explain how a hash table works, in a few sentences.",
    "Write a short story about a lighthouse keeper.",
    "Give me a regular expression for dates such as 2024-01-31, and explain it.",
    "What are the advantages of electric cars?",
    "Write a SQL query for the ten customers with the most orders.",
    "Translate to French: The weather is fine today, and we are going to the sea.",
    "Summarize the plot of Romeo and Juliet.",
]


def read_questions(path: Path | None, count: int) -> list[str]:
    """Return `count` questions, evenly from a file of JSON lines with 'turns' (Spec-Bench), or our own few."""
    if path is None:
        return OWN[:count]
    questions = [json.loads(line)["turns"][0] for line in path.read_text(encoding="utf-8").splitlines()]
    short = [question for question in questions if len(question) < _LONGEST]
    return short[:: max(1, len(short) // count)][:count]
