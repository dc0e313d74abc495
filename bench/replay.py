"""Generations replayed from recordings, on a machine that costs what a curve says: no model is needed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.recordings import Recording
from lcspec.auto import AutoDrafter
from lcspec.drafters import NO_DRAFT, Draft, Drafter, LookupDrafter, NoDrafter, Propose
from lcspec.drafters.model import kind_of
from lcspec.planner import WIDEST, CostCurve, LayoutChoice, Planner, Priors, shipped_priors

LONGEST_LOOKUP = WIDEST - 1
SHORTEST_MATCH = 3


@dataclass
class Replay:
    """What a replayed generation took.

    Attributes:
        plain: seconds of plain decoding.
        seconds: seconds with drafts.
        widths: how many passes had how many tokens.
        drafted: draft tokens verified, by drafter.
        accepted: draft tokens accepted, by drafter.
    """

    plain: float = 0.0
    seconds: float = 0.0
    widths: Counter[int] = field(default_factory=Counter)
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)

    @property
    def speed(self) -> float:
        """Against plain decoding."""
        return self.plain / self.seconds if self.seconds else 1.0


@dataclass
class Machine:
    """A machine whose passes take what curves say, and its clock.

    Attributes:
        target: costs of the target's passes where it decodes.
        draft: costs of the draft model's.
        other: costs of the target's in another weight layout.
        moving: seconds that a token takes to move there or back.
        now: seconds since the beginning.
    """

    target: CostCurve
    draft: CostCurve | None = None
    other: CostCurve | None = None
    moving: float = 1e-4
    now: float = 0.0

    def clock(self) -> float:
        """Return seconds since the beginning."""
        return self.now

    def evaluate(self, width: int, depth: int, layouts: LayoutChoice | None) -> float:
        """Let a pass take its time, in the layout that is wanted for it, and return its seconds."""
        seconds = 0.0
        if layouts is not None and layouts.wanted != layouts.here:
            seconds = depth * self.moving
            layouts.record_move(layouts.wanted, depth, seconds)
        costs = self.other if layouts is not None and layouts.here and self.other is not None else self.target
        seconds += costs.seconds(width, depth)
        self.now += seconds
        return seconds


class RecordedModel:
    """Drafts what a draft model drafted in a recording, and takes its time for that."""

    name = "model"
    moving_seconds = moved_seconds = 0.0  # it evaluates everything itself

    def __init__(self, machine: Machine, recording: Recording, length: int | None = None) -> None:
        assert machine.draft is not None
        self._machine, self._costs = machine, machine.draft
        self._recording = recording
        self._length = length
        self._done = 0  # tokens of the text
        self._evaluated = 0  # tokens of prompt and text

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Nothing is evaluated yet."""

    @property
    def n_behind(self) -> int | None:
        """Tokens that the draft model has not evaluated."""
        return len(self._recording.prompt) + self._done - self._evaluated

    def propose(self, limit: int, goes_on: Callable[[Draft], bool] = lambda _: True) -> Draft:
        """Return what the model proposed in the recording; behind a wrong token, what it proposed behind the right."""
        depth = len(self._recording.prompt) + self._done
        self._machine.now += self._costs.seconds(self.n_behind or 1, depth)
        draft = Draft((), self.name)
        end = min(self._done + limit, self._done + (self._length or limit), len(self._recording.draft_tokens))
        for i in range(self._done, end):
            kind = kind_of(self._recording.draft_probabilities[i], len(draft.kinds))
            tokens = (*draft.tokens, self._recording.draft_tokens[i])
            draft = Draft(tokens, self.name, kinds=(*draft.kinds, kind))
            if i + 1 == end or not goes_on(draft):
                break
            self._machine.now += self._costs.seconds(1, depth + len(draft.tokens))
        self._evaluated = depth
        return draft

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        """Go on in the text."""
        right = 0
        expected = self._recording.draft_tokens[self._done : self._done + len(tokens) - 1]
        while right < len(expected) and expected[right] == tokens[right]:
            right += 1
        if self._evaluated == len(self._recording.prompt) + self._done:
            self._evaluated += right  # of an accepted draft all but the last token was evaluated
        self._done += len(tokens)

    def close(self) -> None:
        """Nothing is held."""


def replay(recording: Recording, machine: Machine, drafter: Drafter, result: Replay | None = None) -> Replay:
    """Let a drafter draft for a recorded text, greedily verified, and count what that takes."""
    result = Replay() if result is None else result
    prompt, text = list(recording.prompt), recording.text
    layouts = drafter.planner.layouts if isinstance(drafter, AutoDrafter) else None
    drafter.begin(prompt, _no_logits)
    done = 1
    drafter.commit(text[:1], 0.0)
    while done < len(text):
        started = machine.now
        draft = drafter.propose(len(text) - done - 1) if len(text) - done > 1 else NoDrafter().propose(0)
        depth = len(prompt) + done - 1
        evaluating = machine.evaluate(1 + len(draft.tokens), depth, layouts)
        accepted = 0
        while accepted < len(draft.tokens) and draft.tokens[accepted] == text[done + accepted]:
            accepted += 1
        emitted = text[done : done + accepted + 1]
        result.seconds += machine.now - started
        result.plain += sum(machine.target.seconds(1, depth + i) for i in range(len(emitted)))
        result.widths[1 + len(draft.tokens)] += 1
        if draft.tokens:
            result.drafted[draft.drafter] += len(draft.tokens)
            result.accepted[draft.drafter] += accepted
        drafter.commit(emitted, evaluating)
        done += len(emitted)
    return result


def planner_of(machine: Machine, costs: CostCurve, priors: Priors | None = None) -> Planner:
    """Return a planner that has seen nothing yet, and what it believes of a machine's costs."""
    draft = None if machine.draft is None else CostCurve.from_dict(machine.draft.as_dict())
    planner = Planner(costs, shipped_priors() if priors is None else priors, draft)
    if machine.other is not None:
        planner.layouts.curves = costs, CostCurve.from_dict(machine.other.as_dict())
        planner.layouts.record_loading(0.0)
    return planner


def auto(recording: Recording, machine: Machine, planner: Planner, *, align: bool = True) -> AutoDrafter:
    """Return the drafter `auto` for a recording; the planner may have seen others before."""
    model = None if machine.draft is None or not recording.draft_tokens else RecordedModel(machine, recording)
    return AutoDrafter(planner, full_lookup(recording, align=align), model, clock=machine.clock)


def full_lookup(recording: Recording, *, align: bool = True) -> LookupDrafter:
    """Return lookup as the planner uses it: as much as it finds."""
    return LookupDrafter(
        recording.ends.__contains__,
        LONGEST_LOOKUP,
        min_match=SHORTEST_MATCH,
        max_match=64,
        align=align,
        digits=recording.digits,
    )


def lookup_oracle(recording: Recording, costs: CostCurve, *, align: bool = True) -> float:
    """Return the speed, against plain decoding, of lookup drafts cut where the first wrong token begins.

    Each pass then has the length that emits most tokens a second, as far as its draft is right; of two drafts, the
    one that is right for longer.
    """
    text = recording.text
    if len(text) < 2:
        return 1.0
    machine = Machine(costs)
    rate = 1 / costs.seconds(1, len(recording.prompt))
    best = 1.0
    for _ in range(3):  # the best lengths depend on the rate that they give
        result = replay(recording, machine, _Oracle(recording, costs, rate, align))
        best = max(best, result.speed)
        rate = (len(text) - 1) / result.seconds
    return best


def curve_limit(costs: CostCurve) -> float:
    """Return what drafts bring at the most: the largest n T(1) / T(n)."""
    return costs.best_speedup()


class _Oracle:
    """Knows the text, and cuts lookup's drafts to the length that pays best of those that are all right."""

    def __init__(self, recording: Recording, costs: CostCurve, rate: float, align: bool) -> None:
        self._text, self._costs, self._rate = recording.text, costs, rate
        self._lookup = full_lookup(recording, align=align)
        self._done = 0
        self._depth = 0

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        self._lookup.begin(prompt, propose)
        self._depth = len(prompt)

    def propose(self, limit: int) -> Draft:
        right = [draft.first(self._n_right(draft)) for draft in self._lookup.offers(limit)]
        draft = max(right, key=lambda draft: len(draft.tokens), default=NO_DRAFT)
        seconds, _ = self._costs.padded(self._depth)
        length = max(range(len(draft.tokens) + 1), key=lambda k: k - self._rate * float(seconds[k + 1]))
        return draft.first(length)

    def _n_right(self, draft: Draft) -> int:
        n = 0
        while n < len(draft.tokens) and draft.tokens[n] == self._text[self._done + n]:
            n += 1
        return n

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        self._done += len(tokens)
        self._depth += len(tokens)
        self._lookup.commit(tokens)

    def close(self) -> None:
        self._lookup.close()


def _no_logits(*_: object) -> tuple[int, None]:
    raise AssertionError("a recording has no logits")
