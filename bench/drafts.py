"""How good drafts are: recordings replayed through drafters, without a model.

    python -m bench.drafts RECORDINGS... [--machine NAME] [--category TEXT]...

For each category and drafter: tokens of the text for each pass, the share of the text that was drafted right, the draft
tokens verified in vain for each token of the text, and the speed under a machine's cost curve against plain decoding.
'auto' is the project's planner with all of lookup, 'suffix' the same planner with the longest suffix alone. The
others are what llama-cpp-python and llama.cpp's server do by default; they verify all that they draft.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from bench.recordings import Recording, read_recordings
from bench.replay import Replay, auto, planner_of, replay
from bench.simulate import machine_of
from lcspec.drafters import NO_DRAFT, Draft, Propose
from lcspec.planner import MACHINES

_SIMPLE_NGRAM, _SIMPLE_DRAFT = 12, 48  # llama-server's defaults


class LlamaLookup:
    """llama-cpp-python's prompt lookup, as it comes: matches of two tokens, drafts of ten."""

    name = "llama_cpp"

    def __init__(self) -> None:
        self._lookup = LlamaPromptLookupDecoding()
        self._text: list[int] = []

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Search the prompt."""
        self._text = list(prompt)

    def propose(self, limit: int) -> Draft:
        """Return what it drafts."""
        return Draft(tuple(map(int, self._lookup(np.array(self._text, dtype=np.intc)))), self.name).first(limit)

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        """Go on in the text."""
        self._text += tokens

    def close(self) -> None:
        """Nothing is held."""


class ServerLookup:
    """The mode 'ngram-simple' of llama.cpp's server: what followed the latest occurrence of the last 12 tokens.

    It drafts as many as 48 tokens and no fewer than 12 (llama.cpp, common/ngram-map.cpp).
    """

    name = "ngram-simple"

    def __init__(self) -> None:
        self._text = ""  # a character for each token, so that strings do the search

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Search the prompt."""
        self._text = "".join(map(chr, prompt))

    def propose(self, limit: int) -> Draft:
        """Return what it drafts."""
        n = len(self._text)
        start = self._text.rfind(self._text[n - _SIMPLE_NGRAM :], 0, n - 1) if n > _SIMPLE_NGRAM + _SIMPLE_DRAFT else -1
        end = start + _SIMPLE_NGRAM
        followed = self._text[end : end + _SIMPLE_DRAFT]
        if start <= 0 or len(followed) < _SIMPLE_NGRAM:
            return NO_DRAFT
        return Draft(tuple(map(ord, followed)), self.name).first(limit)

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        """Go on in the text."""
        self._text += "".join(map(chr, tokens))

    def close(self) -> None:
        """Nothing is held."""


def replays(recordings: Sequence[Recording], machine_name: str) -> dict[str, dict[str, Replay]]:
    """Return what each drafter's passes over the recordings took, by category and drafter."""
    results: dict[str, dict[str, Replay]] = defaultdict(lambda: defaultdict(Replay))
    planners = {
        name: planner_of(machine_of(machine_name, False), machine_of(machine_name, False).target) for name in _OWN
    }
    for recording in recordings:
        found = results[recording.category]
        for name, make in _OTHERS.items():
            replay(recording, machine_of(machine_name, False), make(), found[name])
        for name, align in _OWN.items():
            machine = machine_of(machine_name, False)
            replay(recording, machine, auto(recording, machine, planners[name], align=align), found[name])
    return results


_OTHERS: dict[str, Callable[[], LlamaLookup | ServerLookup]] = {
    LlamaLookup.name: LlamaLookup,
    ServerLookup.name: ServerLookup,
}
_OWN = {"suffix": False, "auto": True}


def line(result: Replay) -> str:
    """Return the figures of a drafter."""
    passes = result.widths.total()
    accepted, drafted = result.accepted.total(), result.drafted.total()
    text = passes + accepted
    return f"{text / passes:10.2f}{accepted / text:10.0%}{(drafted - accepted) / text:10.2f}{result.speed:10.2f}"


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--machine", default="2-cores-avx512", show_default=True, type=click.Choice(list(MACHINES)))
@click.option("--category", "categories", multiple=True, help="Only categories with this in their names.")
def main(recordings: Sequence[Path], machine: str, categories: Sequence[str]) -> None:
    found = [
        recording
        for path in recordings
        for recording in read_recordings(path)
        if not categories or any(name in recording.category for name in categories)
    ]
    print(f"{machine:24}{'drafter':>14}{'a pass':>10}{'drafted':>10}{'in vain':>10}{'speed':>10}")
    for category, by_drafter in replays(found, machine).items():
        for name, result in by_drafter.items():
            print(f"{category:24}{name:>14}{line(result)}")


if __name__ == "__main__":
    main()
