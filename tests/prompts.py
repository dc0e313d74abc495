"""Twelve varied prompts, short enough that prompt and 100 tokens stay under 256 cells.

A cache grows in steps of 256 cells, and from 512 on llama.cpp evaluates a lone token in another way than
several, which rounds differently. Under 256 tokens plain and speculative texts are the same to the bit.
"""

import json
import os
from pathlib import Path

PROMPTS = [
    "Once upon a time, in a village by the sea,",
    "class Stack:\n    def __init__(self):\n        self.items = []\n",
    "The three most important rivers of Europe are",
    "1, 2, 3, 5, 8, 13,",
    '{"name": "Ada", "age": 36}\n{"name": "Alan", "age": 41}\n{"name": "Grace", "age": 45}\n',
    "<ul>\n  <li>apples</li>\n  <li>pears</li>\n  <li>plums</li>\n",
    "Dear Sir or Madam,\n\nI am writing to complain about",
    "Photosynthesis is the process by which plants",
    "Il était une fois une petite fille qui",
    "She said: “No.” He said: “Yes.” She said: “No.” He said:",
    "In the year 2150, people live on",
    "東京は日本の首都です。",
]

_TOPICS = ["bees", "the moon", "bread", "a lighthouse", "rivers", "old maps", "chess"]
_TASKS = [
    "Write a few sentences about {}.",
    "List five facts about {}, and then repeat the list.",
    "Correct the spelling: I lik {} verry much, becaus it is intresting.",
    "Translate to French: We talk about {} every day.",
    "Write a JSON object that describes {}, with three keys.",
]


def own_questions() -> list[str]:
    """Return questions of our own, for a chat."""
    return [task.format(topic) for topic in _TOPICS for task in _TASKS]


def questions(n: int) -> list[str]:
    """Return `n` questions: some of the file that LCSPEC_QUESTIONS names (JSON lines as of Spec-Bench), if any."""
    path = os.environ.get("LCSPEC_QUESTIONS")
    lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    given = [json.loads(line)["turns"][0] for line in lines]
    short = [question for question in given if len(question) < 400]
    chosen = short[:: max(1, len(short) * 2 // n)][: n // 2]
    return [*chosen, *(own_questions() * 2)][:n]


def long_question(n_words: int) -> str:
    """Return a question with a text of about `n_words` words, which differ."""
    words = (f"{_TOPICS[i % len(_TOPICS)]} {i * i % 97}," for i in range(n_words // 2))
    return f"Here are notes:\n{' '.join(words)}\nWhat do the notes say about bread? Repeat those that do."
