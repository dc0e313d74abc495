"""What `bench.speed` measured: the data, its file, and what follows from it as a table and a plot."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any, Final

PLAIN: Final = "none"
AUTO: Final = "auto"
LLAMA, SERVER = "Llama", "llama-server"
"""What the names of the peers begin with."""

ALL = "all"


@dataclass(frozen=True)
class Timing:
    """One generation.

    Attributes:
        prefill_seconds: from the start to the first token.
        decode_seconds: from the first token to the last.
        tokens: tokens of the text, an end-of-generation token included.
        passes: evaluations by the target behind the prompt; None where that is not known.
        drafted: draft tokens that were verified; 0 where that is not known.
        accepted: how many of them were right.
    """

    prefill_seconds: float
    decode_seconds: float
    tokens: int
    passes: int | None = None
    drafted: int = 0
    accepted: int = 0

    @property
    def decode_seconds_per_token(self) -> float | None:
        """Seconds for each token behind the first; None where there is no other."""
        return self.decode_seconds / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def whole_seconds_per_token(self) -> float | None:
        """Seconds for each token, the prompt's evaluation included."""
        return (self.prefill_seconds + self.decode_seconds) / self.tokens if self.tokens else None


@dataclass(frozen=True)
class Answer:
    """How long the contenders took for the answer to one question.

    Attributes:
        category: the question's.
        prompt_tokens: length of the prompt.
        rounds: of each contender all rounds with the prompt in the cache; of one that can't be asked again, the whole
            request.
        whole: of each contender that was asked so, one request from an empty cache.
        same_text: of each contender, whether it always wrote what plain decoding wrote.
        lookup_oracle: speed against plain of an oracle that knows how much of each lookup draft will be accepted.
    """

    category: str
    prompt_tokens: int
    rounds: dict[str, tuple[Timing, ...]]
    whole: dict[str, Timing]
    same_text: dict[str, bool]
    lookup_oracle: float | None = None

    def speed(self, name: str) -> float | None:
        """Return the decoding speed of a contender against plain, by the medians of the rounds."""
        return _ratio(self._decode_seconds_per_token(PLAIN), self._decode_seconds_per_token(name))

    def whole_speed(self, name: str, against: str = PLAIN) -> float | None:
        """Return the speed of the whole request, from the prompt to the last token, against another contender's."""
        if name not in self.whole or against not in self.whole:
            return None
        return _ratio(self.whole[against].whole_seconds_per_token, self.whole[name].whole_seconds_per_token)

    def _decode_seconds_per_token(self, name: str) -> float | None:
        return _median(timing.decode_seconds_per_token for timing in self.rounds.get(name, ()))


@dataclass(frozen=True)
class Results:
    """A run of the benchmark.

    Attributes:
        machine: what `lcspec.llama.machine` says.
        options: models, threads and what else was chosen.
        contenders: names in order.
        planned: number of questions; there are fewer answers when the run was interrupted.
        curve_limit: speed against plain that the costs of passes allow at the most.
        answers: in order.
    """

    machine: dict[str, str]
    options: dict[str, Any]
    contenders: tuple[str, ...]
    planned: int
    curve_limit: float | None = None
    answers: tuple[Answer, ...] = ()

    def write(self, path: Path) -> None:
        """Write a file of JSON, whole or not at all."""
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Return the results of a file."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        answers = tuple(map(_answer, fields.pop("answers")))
        return cls(**fields | {"contenders": tuple(fields["contenders"]), "answers": answers})


def _answer(fields: dict[str, Any]) -> Answer:
    rounds = {name: tuple(Timing(**timing) for timing in timings) for name, timings in fields.pop("rounds").items()}
    whole = {name: Timing(**timing) for name, timing in fields.pop("whole").items()}
    return Answer(rounds=rounds, whole=whole, **fields)


@dataclass(frozen=True)
class Summary:
    """What a category's answers say; figures are None where nothing gives them.

    Attributes:
        category: its name, or `ALL`.
        prompts: how many were answered.
        speeds: of each contender, the decoding speed against plain: the median over the prompts.
        lowest: the lowest of auto's over the prompts.
        tokens_per_pass: that auto's target passes emitted on average.
        acceptance_rate: of auto's drafts.
        of_curve: auto's speed as a share of what the costs of passes allow, the median over the prompts.
        of_oracle: its share of what the lookup oracle would reach.
        whole_speeds: of each contender, the speed of whole requests against plain.
        auto_over: auto's speed of whole requests against that of each peer.
        same_texts: of each contender, how many texts were plain's.
    """

    category: str
    prompts: int
    speeds: dict[str, float | None]
    lowest: float | None
    tokens_per_pass: float | None
    acceptance_rate: float | None
    of_curve: float | None
    of_oracle: float | None
    whole_speeds: dict[str, float | None]
    auto_over: dict[str, float | None]
    same_texts: dict[str, int]

    def auto_over_best(self, kind: str) -> tuple[str, float] | None:
        """Return the peer of a kind that does best against auto in whole requests, and auto's speed over it."""
        found = [(n, ratio) for n, ratio in self.auto_over.items() if n.startswith(kind) and ratio is not None]
        return min(found, key=lambda one: one[1], default=None)


def summarize(results: Results) -> list[Summary]:
    """Return a summary of each category, and of all together where there are several."""
    by_category: dict[str, list[Answer]] = defaultdict(list)
    for answer in results.answers:
        by_category[answer.category].append(answer)
    if len(by_category) > 1:
        by_category[ALL] = list(results.answers)
    return [_summary(category, answers, results) for category, answers in by_category.items()]


def _summary(category: str, answers: list[Answer], results: Results) -> Summary:
    names = results.contenders
    auto = [timing for answer in answers for timing in answer.rounds.get(AUTO, ())]
    speeds = [answer.speed(AUTO) for answer in answers]
    emitted = sum(timing.tokens - 1 for timing in auto)
    return Summary(
        category,
        prompts=len(answers),
        speeds={name: _median(answer.speed(name) for answer in answers) for name in names},
        lowest=min(_known(speeds), default=None),
        tokens_per_pass=_ratio(emitted, sum(timing.passes or 0 for timing in auto)),
        acceptance_rate=_ratio(sum(timing.accepted for timing in auto), sum(timing.drafted for timing in auto)),
        of_curve=_median(_ratio(speed, results.curve_limit) for speed in speeds),
        of_oracle=_median(_ratio(speed, answer.lookup_oracle) for speed, answer in zip(speeds, answers, strict=True)),
        whole_speeds={name: _median(answer.whole_speed(name) for answer in answers) for name in names},
        auto_over={
            name: _median(answer.whole_speed(AUTO, name) for answer in answers) for name in names if _is_peer(name)
        },
        same_texts={name: sum(answer.same_text.get(name, False) for answer in answers) for name in names},
    )


def _is_peer(name: str) -> bool:
    return name.startswith((LLAMA, SERVER))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return median(known) if known else None


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


# as a table


@dataclass(frozen=True)
class _Column:
    """A heading, and a cell for each summary."""

    heading: str
    cell: Callable[[Summary], str]


def table(results: Results) -> str:
    """Return the results as text."""
    summaries = summarize(results)
    if not summaries:
        return "Nothing was measured."
    parts = [_title(results)]
    for title, columns in _tables(results):
        parts.append(f"{title}\n\n{_rendered(summaries, columns)}")
    return "\n\n".join(parts)


def _title(results: Results) -> str:
    options, done = results.options, len(results.answers)
    draft = f" with {options['draft']}" if options.get("draft") else ""
    limit = "" if results.curve_limit is None else f"; the costs of passes allow {results.curve_limit:.2f} at the most"
    interrupted = "" if done == results.planned else f" of {results.planned}, since the run was interrupted"
    return (
        f"{options['model']}{draft}, {_count(options['threads'], 'thread')}, {results.machine['processor']}, "
        f"{results.machine['library']}\n"
        f"{_count(done, 'prompt')}{interrupted}; medians of {_count(options['repeats'], 'round')}; plain is 1{limit}"
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _tables(results: Results) -> list[tuple[str, list[_Column]]]:
    own = [name for name in results.contenders if not _is_peer(name) and name != PLAIN]
    tables = [("Decoding speed", [_Column("prompts", lambda one: str(one.prompts)), *map(_speed, own), *_AUTO_COLUMNS])]
    for kind, title in (LLAMA, "llama_cpp.Llama"), (SERVER, "llama-server"):
        if names := [name for name in results.contenders if name.startswith(kind)]:
            tables.append((f"Decoding speed of {title}, against lcspec's plain", list(map(_speed, names))))
    tables.append(("Whole requests, from an empty cache to the last token", _whole_columns(results.contenders)))
    others = [name for name in results.contenders if name != PLAIN]
    tables.append(("Texts that are plain's", [_Column("prompts", lambda one: str(one.prompts)), *map(_same, others)]))
    return tables


_AUTO_COLUMNS = [
    _Column("auto's lowest", lambda one: _number(one.lowest)),
    _Column("tokens a pass", lambda one: _number(one.tokens_per_pass)),
    _Column("drafts accepted", lambda one: _percent(one.acceptance_rate)),
    _Column("of curve limit", lambda one: _percent(one.of_curve)),
    _Column("of lookup oracle", lambda one: _percent(one.of_oracle)),
]


def _speed(name: str) -> _Column:
    return _Column(name, lambda one: _number(one.speeds[name]))


def _same(name: str) -> _Column:
    return _Column(name, lambda one: str(one.same_texts[name]))


def _whole_columns(names: Sequence[str]) -> list[_Column]:
    columns = [_Column("auto over plain", lambda one: _number(one.whole_speeds[AUTO]))]
    for kind in LLAMA, SERVER:
        if any(name.startswith(kind) for name in names):
            columns += [_over(kind), _over_best(kind)]
    return columns


def _over(name: str) -> _Column:
    return _Column(f"auto over {name}", lambda one: _number(one.auto_over.get(name)))


def _over_best(kind: str) -> _Column:
    return _Column(f"auto over best of {kind}", lambda one: _best(one, kind))


def _best(summary: Summary, kind: str) -> str:
    best = summary.auto_over_best(kind)
    return "-" if best is None else f"{best[1]:.2f} ({best[0].removeprefix(kind).strip() or 'plain'})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _rendered(summaries: Sequence[Summary], columns: Sequence[_Column]) -> str:
    """Return lines with a row for each summary; headings have a line for each word."""
    headings = [["category"], *(column.heading.split() for column in columns)]
    rows = [[summary.category, *(column.cell(summary) for column in columns)] for summary in summaries]
    head = list(zip_longest(*(reversed(words) for words in headings), fillvalue=""))[::-1]
    widths = [max(map(len, cells)) for cells in zip(*head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))]
        ).rstrip()
        for first, *cells in (*head, ["-" * width for width in widths], *rows)
    )


# as a plot


def plot(results: Results, path: Path) -> None:
    """Draw decoding speeds against plain, a group of bars for each category.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    summaries = summarize(results)
    names = [name for name in results.contenders if name != PLAIN]
    width = 0.85 / len(names)
    figure = Figure(figsize=(2 + 0.16 * len(names) * len(summaries) + 0.6 * len(summaries), 5), layout="constrained")
    axes = figure.subplots()
    for i, name in enumerate(names):
        places = [j + (i - (len(names) - 1) / 2) * width for j in range(len(summaries))]
        heights = [math.nan if (speed := one.speeds[name]) is None else speed for one in summaries]
        axes.bar(places, heights, width, label=name, color=f"C{i % 10}", hatch="//" if i >= 10 else None)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(range(len(summaries)), [one.category for one in summaries], rotation=30, ha="right")
    axes.set_ylabel("decoding speed against plain")
    axes.set_title(results.options["model"])
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    figure.savefig(path)
