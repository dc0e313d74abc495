"""What the target is asked, so that it writes the texts that a draft head learns from."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

from lcspec.errors import FileError

_MOST_CHARACTERS = 6000  # of a prompt
_LEAST_CHARACTERS = 8

_TOPICS = (
    "the water cycle", "electric cars", "the Roman Empire", "photosynthesis", "jazz music", "a lighthouse keeper",
    "climate change", "the French Revolution", "machine learning", "healthy breakfasts", "time management",
    "the solar system", "a lost dog", "the history of tea", "coral reefs", "job interviews", "remote work",
    "renewable energy", "a haunted library", "the human heart", "beekeeping", "public transport", "black holes",
    "a trip to Japan", "gardening in small spaces", "the stock market", "vaccines", "sleep", "medieval castles",
    "online privacy", "learning a language", "a dragon who is afraid of fire", "volcanoes", "chess openings",
    "the Olympic Games", "recycling", "a small bakery", "artificial intelligence in medicine", "the Amazon rainforest",
    "running a marathon", "earthquakes", "friendship", "the printing press", "dinosaurs", "a robot who paints",
    "personal budgets", "the Great Barrier Reef", "yoga", "the moon landing", "a village by the sea", "bicycles",
    "the immune system", "social media", "ancient Egypt", "cooking pasta", "a detective in Paris", "wolves",
    "the internet", "mountain climbing", "space telescopes", "the Silk Road", "a school play", "honesty", "rivers",
)  # fmt: skip

_TASKS = (
    "Write a short story about {}.",
    "Explain {} to a child of ten.",
    "Give me five interesting facts about {}.",
    "Write a blog post about {}.",
    "What are the advantages and disadvantages that people see in {}?",
    "Write a poem about {}.",
    "Write an email to a friend about {}.",
    "Make an outline for a talk about {}.",
    "What should everybody know about {}?",
    "Write a dialogue between two people who disagree about {}.",
    "How would you describe {} in one paragraph?",
    "List ten questions that a teacher could ask about {}.",
    "Write a product description for a book about {}.",
    "What is the history of {}?",
    "Write a news report about {}.",
    "Give me a step-by-step guide for somebody who is new to {}.",
    "Compare {} with something similar, and say what differs.",
    "Why does {} matter today? Answer in detail.",
    "Imagine you are a journalist. Interview an expert on {}.",
    "Summarize what is known about {} in three sentences.",
)

_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jack")
_THINGS = ("apples", "books", "marbles", "stamps", "cookies", "tickets", "pencils", "eggs", "bottles", "flowers")
_SUMS = (
    "{a} has {x} {t}. {b} has {y} times as many. How many {t} do they have together?",
    "{a} buys {x} boxes with {y} {t} in each and gives {z} {t} to {b}. How many {t} are left?",
    "A shop sells {t} at ${y} each. {a} buys {x} of them and pays with a $500 bill. How much change does {a} get?",
    "{a} collects {x} {t} every day. After {y} days {a} shares them equally with {b}. How many {t} does each get?",
    "A train drives {x} miles in {y} hours. How far does it drive in {z} hours at the same speed?",
    "What is {x} times {y} plus {z}? Explain each step.",
)

_CODE = (
    "Write a Python function that {}.",
    "Write a program in JavaScript that {}.",
    "Write a function in C++ that {}, and explain how it works.",
    "How can I write a test for code that {}?",
)
_DEEDS = (
    "merges two sorted lists", "counts the words in a text", "checks whether a number is prime",
    "finds the longest common subsequence of two strings", "reverses a linked list", "sorts a list of names",
    "reads a CSV file and prints the average of a column", "computes Fibonacci numbers",
    "removes duplicates from a list",
    "validates an email address", "converts Celsius to Fahrenheit", "finds the shortest path in a graph",
    "counts vowels", "computes the factorial of a number", "finds the largest element of an array",
    "searches a binary tree", "rotates a matrix", "parses a date", "plays tic-tac-toe", "caches web pages",
)  # fmt: skip

_PASSAGES = (
    "The town council met on Tuesday to discuss the future of the old railway station, which has stood empty since "
    "1998. Two plans were presented. The first turns the building into a library and a meeting place; it costs 2.4 "
    "million euros and would be finished in three years. The second sells it to a hotel company, which promises "
    "forty jobs. Many citizens spoke for the library. The council will decide in March.",
    "Honeybees tell each other where food is by dancing. A bee that has found flowers returns to the hive and runs in "
    "a figure of eight, shaking her body on the middle line. The angle of that line against the vertical is the angle "
    "between the sun and the flowers, and the longer she shakes, the farther away they are. Karl von Frisch, who "
    "described the dance, received the Nobel Prize in 1973.",
    "Maria opened the letter with trembling hands. Her grandmother's house, the one with the blue shutters above the "
    "bay, now belonged to her, on one condition: she had to live in it for a year. She thought of her small flat, of "
    "the office, of Jonas who would never leave the city. Then she folded the letter and began to pack.",
    "The company reported sales of 310 million dollars for the third quarter, 8 percent more than a year before, while "
    "profit fell to 21 million because of higher prices for energy and transport. It expects sales of 1.3 billion for "
    "the year. The chief executive said that two new factories, in Poland and in Mexico, would open in spring.",
    "Glaciers form where more snow falls in winter than melts in summer. Over decades the snow is pressed into ice, "
    "which begins to flow downhill under its own weight, a few meters a year or, in steep valleys, several hundred. "
    "Glaciers store about two thirds of the world's fresh water. Since 1970 most of them have lost ice every year.",
    "The first bicycles had no pedals: their riders pushed themselves along with their feet. Pedals came in the 1860s, "
    "on the front wheel, and since one turn of the pedals was one turn of the wheel, wheels grew ever larger. The "
    "chain made these dangerous machines unnecessary. By 1890 bicycles looked almost as they do now.",
)
_ON_PASSAGES = (
    "Summarize: {}",
    "Summarize the following text in one sentence.\n\n{}",
    "{}\n\nWhat is this text about, and what are its main points?",
    "Rewrite this text in simpler words:\n\n{}",
    "Read the text and write three questions about it, with answers.\n\n{}",
    "Translate to German: {}",
    "Translate to French: {}",
    "Continue the text:\n\n{}",
)


def built_in_prompts(seed: int = 0) -> list[str]:
    """Return some 1,600 prompts for all sorts of texts, in an order that the seed decides."""
    chance = random.Random(seed)
    prompts = [task.format(topic) for task in _TASKS for topic in _TOPICS]
    prompts += [kind.format(deed) for kind in _CODE for deed in _DEEDS]
    prompts += [task.format(passage) for task in _ON_PASSAGES for passage in _PASSAGES]
    prompts += [
        pattern.format(
            a=a, b=chance.choice(_NAMES), t=chance.choice(_THINGS), x=chance.randint(2, 40), y=chance.randint(2, 12),
            z=chance.randint(2, 20),
        )
        for pattern in _SUMS
        for a in _NAMES * 3
    ]  # fmt: skip
    chance.shuffle(prompts)
    return prompts


def read_prompts(path: Path) -> list[str]:
    """Return the prompts of a file: of JSON lines ('turns', 'prompt', 'text' or a string), else one a paragraph.

    Raises:
        FileError: the file can't be read, or there is no prompt in it.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise FileError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        found = [prompt for i, line in enumerate(lines, 1) for prompt in _of_json(line, path, i)]
    else:
        found = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    prompts = list(_usable(found))
    if not prompts:
        raise FileError(f"there is no prompt in {path}")
    return prompts


def _of_json(line: str, path: Path, number: int) -> list[str]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise FileError(f"line {number} of {path} is not JSON: {error}") from error
    if isinstance(value, dict):
        value = next((value[key] for key in ("turns", "prompt", "text") if key in value), None)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str):
        raise FileError(f"line {number} of {path} has no 'turns', 'prompt' or 'text'")
    return [value]


def _usable(prompts: Iterable[str]) -> Iterable[str]:
    return (prompt for prompt in prompts if _LEAST_CHARACTERS <= len(prompt) <= _MOST_CHARACTERS)
