"""What the benchmarks ask: the project's own edits of files, and the questions of Spec-Bench, by category."""

import importlib
import inspect
import json
import textwrap
from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from bench.questions import OWN

_LONGEST_QUESTION = 6000  # characters
EDIT_TOKENS, ANSWER_TOKENS = 400, 128

_COMMENTED = ("textwrap:dedent", "tokenize:untokenize", "gzip:compress", "csv:Sniffer.sniff", "heapq:_siftup")
_PLAIN = ("shutil:copy2", "sched:scheduler.run", "queue:Queue.put", "colorsys:rgb_to_hls", "timeit:Timer.autorange")
_RENAMES = {
    "shutil:copy2": ("src", "source"),
    "sched:scheduler.run": ("q", "pending_events"),
    "queue:Queue.put": ("timeout", "max_wait"),
    "colorsys:rgb_to_hls": ("maxc", "largest"),
    "timeit:Timer.autorange": ("time_taken", "seconds"),
}

_LETTERS = (
    """Dear neighbours,

last weekend we have celebrated our street festival, and I wants to thank everybody who helped. Nearly hundred
people came, alltough the weather was not good in the morning. The childrens race was a great sucess, and so was
the cake of Mrs. Miller. We collected 340 euros for the playground, wich is more then last year.

Next year we would like to begin a hour earlier. Who has an idea for the music, please tell me until March.

Kind regards,
Tom""",
    """Dear Ms. Keller,

thank you for you're order of three oak shelfs. Unfortunatly our supplier can not deliver before the 14. of May,
because the saw mill is closed for repair. If you do'nt want to wait, we can offer you ash instead off oak, at
the same prize. The shelves would then be send to you next week.

Please let us now what you prefer. We are sorry for the inconvinience.

Best regards,
Woodworks Ltd.""",
    """Minutes of the meeting on Tuesday

Present was Anna, Boris, Carla and Dev. The budget for the new libary was discused for over a hour. Boris thinks
that the roof have to be repaired first, since it leaks by every rain. Carla showed two offers, of wich the second
one is cheaper but dont include the gutters. It was decided too ask for a third offer untill the end of the month.

The next meeting take place in two weeks at the same place.""",
    """How we bake our bread

First we mix the flower with luke warm water and let it rest for half a hour. Than the salt and the sour dough is
added, and everything gets kneaded untill the dough do not stick anymore. It rises over night in a cool place. In
the morning we forms two loafs, cut them on top and bake them by 230 degrees. After ten minutes the heat is reduced
too 200 degrees. A good bread sounds hollow if you knocks on it's bottom.""",
    """Walking from the station to our house

When you leaves the station, turn left and follow the river till the old bridge. Behind the bridge their is a small
bakery, were you turn right. Go up the hill past the school; on you're left you will see a red gate. Do'nt go
trough it, but take the narow path besides it. After about two hundred meter you reach a white house with a blue
door: thats us. If you get lost, just call, we will come and pick you up.""",
)

_CHANGES = (
    ("memory: 512Mi", "memory: 1Gi"),
    ("registry.local", "registry.example.org"),
    ("restart: always", "restart: on-failure"),
    ("image: registry.local/worker:1.4", "image: registry.local/worker:1.5"),
    ("replicas: 2", "replicas: 3"),
)


@dataclass(frozen=True)
class Question:
    """Something to ask a model.

    Attributes:
        category: the kind of work.
        text: the user's message.
        max_tokens: where its answer is cut off.
        answered: the answer to a first time that it was asked; None where this is the first.
    """

    category: str
    text: str
    max_tokens: int
    answered: str | None = None

    def messages(self) -> list[dict[str, str]]:
        """Return the conversation up to the question."""
        asked = {"role": "user", "content": self.text}
        return [asked] if self.answered is None else [asked, {"role": "assistant", "content": self.answered}, asked]


def own_work(per_category: int) -> list[Question]:
    """Return questions of our own: some for a chat, and edits of files of the standard library and of other texts."""
    asked = [
        *(("edit: rename", rename(name, *_RENAMES[name])) for name in _PLAIN),
        *(("edit: type hints", of_code(name, "Add type hints to the parameters and results")) for name in _PLAIN),
        *(("edit: docstring", of_code(name, "Give each function a one-line docstring")) for name in _PLAIN),
        *(("edit: comments", of_code(name, "Translate all comments into German")) for name in _COMMENTED),
        *(("edit: configuration", _of_configuration(old, new)) for old, new in _CHANGES),
        *(("edit: reformat", reformat(name)) for name in _COMMENTED),
        *(("edit: proofread", proofread(letter)) for letter in _LETTERS),
    ]
    chat = [Question("chat", text, ANSWER_TOKENS) for text in OWN]
    edits = [Question(category, text, EDIT_TOKENS) for category, text in asked]
    return _first_of_each(chat + edits + [copy(name) for name in _COMMENTED], per_category)


def spec_bench(path: Path, per_category: int, behind: int = 0) -> list[Question]:
    """Return questions of a file of JSON lines with 'category' and 'turns', as Spec-Bench has them.

    Args:
        path: the file.
        per_category: how many of each category,
        behind: after so many others.
    """
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    asked = [Question(line["category"], line["turns"][0], ANSWER_TOKENS) for line in lines]
    short = [question for question in asked if len(question.text) <= _LONGEST_QUESTION]
    return _first_of_each(short, per_category, behind)


def _first_of_each(questions: list[Question], n: int, behind: int = 0) -> list[Question]:
    by_category: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        by_category[question.category].append(question)
    return [question for found in by_category.values() for question in found[behind : behind + n]]


def _source(name: str) -> str:
    """Return the source of 'module:qualified.name'."""
    module, path = name.split(":")
    return textwrap.dedent(inspect.getsource(reduce(getattr, path.split("."), importlib.import_module(module))))


def _fenced(name: str) -> str:
    """Return the source of 'module:qualified.name' as a block of Markdown."""
    return f"```python\n{_source(name)}```"


def of_code(name: str, wish: str) -> str:
    """Ask for a function with a change."""
    return f"{wish}, and change nothing else. Answer with the whole code only.\n{_fenced(name)}"


def rename(name: str, old: str, new: str) -> str:
    """Ask for a function with another name of a variable."""
    return of_code(name, f"Rename the variable `{old}` to `{new}`")


def copy(name: str) -> Question:
    """Ask for the same code once more, as small models only copy exactly what they have copied before."""
    code = _fenced(name)
    return Question("copy", f"Repeat this code exactly, and nothing else:\n{code}", EDIT_TOKENS, answered=code)


def reformat(name: str) -> str:
    """Ask for the same code with another indentation."""
    code = _source(name).replace("    ", "  ")
    return f"Indent this code by four spaces instead of two. Answer with the whole code only.\n```python\n{code}```"


def _of_configuration(old: str, new: str) -> str:
    """Ask for a list of alike workers with a change to each."""
    workers = "\n".join(
        f"  - name: worker-{i}\n    image: registry.local/worker:1.4\n    memory: 512Mi\n    replicas: 2\n"
        "    restart: always"
        for i in range(10)
    )
    return f"Replace `{old}` by `{new}` everywhere. Answer with the whole file only.\n```yaml\nworkers:\n{workers}\n```"


def proofread(text: str) -> str:
    """Ask for a text without mistakes."""
    return f"Correct the spelling and the grammar, and change nothing else. Answer with the text only.\n\n{text}"
