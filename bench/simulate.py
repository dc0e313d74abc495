"""What `auto` would bring on other machines: recordings replayed under their cost curves.

    python -m bench.simulate RECORDINGS... [--machine NAME]...

For each machine and category: the best fixed setting and `auto`, against plain decoding, and `auto` as a share of the
best fixed setting and of the lookup oracle. Where the recordings have a draft model, fixed settings of it take part.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from bench.recordings import Recording, read_recordings
from bench.replay import Machine, RecordedModel, Replay, auto, lookup_oracle, planner_of, replay
from lcspec.drafters import Drafter, LookupDrafter
from lcspec.planner import MACHINES, curve_of

OTHER_LAYOUT: dict[str, dict[int, float]] = {
    "2-cores": {1: 1.4, 2: 1.9, 4: 2.9, 8: 9.6, 16: 11.1, 32: 16.7, 64: 29.2, 128: 42.8},
    "2-cores-avx512": {1: 1.17, 2: 2.1, 4: 3.3, 7: 5, 8: 7.5, 16: 8.1, 32: 11, 64: 17, 128: 29.3},
    "2-cores-vnni": {1: 1.66, 2: 2.15, 4: 3.1, 8: 4.4, 16: 4.4, 32: 7, 64: 11.5, 128: 17.9},
}
"""The passes of `MACHINES` with the weights as the file has them, where that was measured."""

_Make = Callable[[Machine, Recording], Drafter]


def _lookup(length: int) -> _Make:
    return lambda machine, recording: LookupDrafter(recording.ends.__contains__, length, min_match=3)


def _model(length: int) -> _Make:
    return lambda machine, recording: RecordedModel(machine, recording, length)


_FIXED: dict[str, _Make] = {
    "lookup": lambda machine, recording: LookupDrafter(recording.ends.__contains__),
    **{f"lookup {n}": _lookup(n) for n in (2, 3, 7, 15, 31, 63)},
}
_FIXED_MODEL: dict[str, _Make] = {f"model {n}": _model(n) for n in (1, 2, 3, 5, 8, 12)}


def machine_of(name: str, with_draft: bool) -> Machine:
    """Return a machine by name."""
    ratios, draft = MACHINES[name]
    model = curve_of({width: draft * ratio for width, ratio in ratios.items()}) if with_draft else None
    layout = OTHER_LAYOUT.get(name)
    return Machine(curve_of(ratios), model, None if layout is None else curve_of(layout))


def speeds(name: str, recordings: Sequence[Recording]) -> dict[str, dict[str, float]]:
    """Return, for each category and setting, speed against plain decoding of all its recordings together."""
    results: dict[str, dict[str, Replay]] = defaultdict(lambda: defaultdict(Replay))
    oracles: dict[str, list[float]] = defaultdict(list)
    costs = machine_of(name, False).target
    planners = {
        with_draft: planner_of(machine_of(name, with_draft), machine_of(name, False).target)
        for with_draft in (False, True)
    }  # which learn from recording to recording, as in a process
    for recording in recordings:
        category = results[recording.category]
        with_draft = bool(recording.draft_tokens)
        for setting, make in (_FIXED | (_FIXED_MODEL if with_draft else {})).items():
            machine = machine_of(name, with_draft)
            replay(recording, machine, make(machine, recording), category[setting])
        for setting, model in (("auto", with_draft), ("auto lookup", False)):
            machine = machine_of(name, model)
            replay(recording, machine, auto(recording, machine, planners[model]), category[setting])
        plain = len(recording.text) * costs.seconds(1)
        oracles[recording.category].append(plain / lookup_oracle(recording, costs))
        category["plain"].plain += plain
    table = {
        name: {setting: result.speed for setting, result in found.items() if setting != "plain"}
        for name, found in results.items()
    }
    for name_of_work, found in table.items():
        found["oracle"] = results[name_of_work]["plain"].plain / sum(oracles[name_of_work])
    return table


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--machine", "machines", multiple=True, type=click.Choice(list(MACHINES)), help="By default all.")
def main(recordings: Sequence[Path], machines: Sequence[str]) -> None:
    found = [recording for path in recordings for recording in read_recordings(path)]
    for machine in machines or MACHINES:
        print(f"\n{machine:24}{'best fixed':>24}{'auto':>8}{'/ fixed':>9}{'oracle':>9}{'lookup / oracle':>17}")
        for category, by_setting in speeds(machine, found).items():
            fixed = {k: v for k, v in by_setting.items() if k not in ("auto", "auto lookup", "oracle")} | {"plain": 1.0}
            best = max(fixed, key=lambda setting: fixed[setting])
            ours, oracle = by_setting["auto"], by_setting["oracle"]
            share = by_setting["auto lookup"] / oracle
            print(
                f"{category:24}{best:>16}{fixed[best]:8.2f}{ours:8.2f}{ours / fixed[best]:9.2f}"
                f"{oracle:9.2f}{share:17.2f}"
            )


if __name__ == "__main__":
    main()
