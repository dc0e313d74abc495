"""What a summary is, and how far it is."""

from dataclasses import dataclass
from typing import Any, Literal

from lcspec.stats import Stats
from lcspec.tasks.selection import Ending


@dataclass(frozen=True)
class Progress:
    """How far a summary is.

    Attributes:
        level: 1 while pieces of the text are summarized, 2 for pieces of their summaries, and so on.
        done: pieces of the level that are summarized.
        pieces: of the level; where it is 1, its summary is the last one.
    """

    level: int
    done: int
    pieces: int


@dataclass(frozen=True)
class Summary:
    """A summary.

    Attributes:
        text: of whole sentences, unless it ends with an ellipsis.
        title: None where none was asked for.
        bullets: the lines of a list without their marks; None where none was asked for.
        finish_reason: 'eog' when the model came to its end, 'length' when sentences that were too many are left out,
            'repetition' when it began to repeat itself, 'cancelled' when the stream was not read to its end.
        pieces: in how many the text was summarized.
        levels: 1, or more where summaries were summarized.
        stats: of all generations together.
        seed: gives this summary again; None where it does not depend on one.
    """

    text: str
    title: str | None
    bullets: tuple[str, ...] | None
    finish_reason: Ending | Literal["cancelled"]
    pieces: int
    levels: int
    stats: Stats
    seed: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON types."""
        return {
            "title": self.title,
            "summary": self.text,
            "bullets": None if self.bullets is None else list(self.bullets),
            "finish_reason": self.finish_reason,
            "pieces": self.pieces,
            "levels": self.levels,
            "tokens": self.stats.tokens,
            "stats": self.stats.as_dict(),
            "seed": self.seed,
        }
