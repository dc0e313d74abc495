"""What a cut vocabulary costs a draft model in acceptance, and what it saves of a step.

    python -m bench.vocabulary RECORDINGS -d DRAFT [--size N]... [--text FILE]... [-t THREADS] [--repeats N]

RECORDINGS are those of `bench.recordings`: texts of the target. For each size and category: how often the target's
token is the draft model's likeliest, of all its tokens and of those that are kept (the logits of these are the same in
a cut file). And the seconds of a step, of the whole model and of a cut file that is made for that, evaluated in turn.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from bench.recordings import Recording, read_recordings
from lcspec.gguf_edit import cut_vocabulary, frequent_tokens, read_gguf, write_gguf
from lcspec.hub import find_model
from lcspec.llama import MAX_WIDTH, Context, Header, Model, read_header

_DEPTH = 200  # tokens before the steps that are timed
_SIZES = (16_384, 32_768, 49_152, 65_536)


@click.command()
@click.argument("recordings", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-d", "--draft", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--size", "sizes", type=click.IntRange(1), multiple=True, default=_SIZES, show_default=True)
@click.option("--text", "texts", type=click.Path(exists=True, path_type=Path), multiple=True, help="To rank tokens by.")
@click.option("-t", "--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=40, show_default=True)
def main(recordings: Path, draft: str, sizes: Sequence[int], texts: Sequence[Path], threads: int, repeats: int) -> None:
    header = read_header(find_model(draft, download=True))
    corpus = [path.read_text(encoding="utf-8", errors="replace") for path in texts]
    kept = {n: np.array(frequent_tokens(header, n, corpus)) for n in sizes}
    for category, right in _agreements(header, read_recordings(recordings), kept, threads).items():
        shares = right.mean(axis=0)
        losses = ", ".join(f"{n:,}: {shares[0] - share:+.4f}" for n, share in zip(kept, shares[1:], strict=True))
        click.echo(f"{category}: {len(right):,} tokens, right {shares[0]:.3f}; lost with {losses}")
    for n, seconds, whole in _steps(header, kept, threads, repeats):
        saved = 1 - statistics.median(a / b for a, b in zip(seconds, whole, strict=True))
        click.echo(
            f"{n:,} tokens: a step of {statistics.median(seconds) * 1e3:.2f} ms, "
            f"of all {statistics.median(whole) * 1e3:.2f} ms: {saved:.1%} saved"
        )


def _agreements(
    header: Header, recordings: Sequence[Recording], kept: dict[int, NDArray[np.int64]], threads: int
) -> dict[str, NDArray[np.bool_]]:
    """Return by category, and for all, for each token whether it is the likeliest: of all, and of each kept set."""
    found: dict[str, list[list[bool]]] = defaultdict(list)
    longest = max(len(one.prompt) + len(one.text) for one in recordings)
    with Model(header) as model, Context(model, longest + 1, threads=threads) as context:
        for one in recordings:
            context.keep_prefix(one.prompt)
            rows = [context.prefill(one.prompt[len(context.tokens) :]).copy()[None, :]]
            for start in range(0, len(one.text) - 1, MAX_WIDTH):
                rows.append(context.evaluate(one.text[start : min(start + MAX_WIDTH, len(one.text) - 1)]).copy())
            for row, token in zip((row for some in rows for row in some), one.text, strict=True):
                right = [int(row.argmax()) == token, *(int(ids[row[ids].argmax()]) == token for ids in kept.values())]
                found[one.category].append(right)
                found["all"].append(right)
    return {category: np.array(right) for category, right in found.items()}


def _steps(
    header: Header, kept: dict[int, NDArray[np.int64]], threads: int, repeats: int
) -> list[tuple[int, list[float], list[float]]]:
    """Return for each size the seconds of steps of a cut file, and of steps of the whole one in turn with them."""
    found = []
    with ExitStack() as stack:
        whole = _context(stack, header, threads)
        for n, ids in kept.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            path = folder / "cut.gguf"
            with path.open("wb") as file:
                write_gguf(file, cut_vocabulary(read_gguf(header), ids.tolist()))
            with ExitStack() as of_size:
                cut = _context(of_size, read_header(path), threads)
                times = [_in_turn(cut, whole, i % 2 == 0) for i in range(repeats)]
            found.append((n, [seconds for seconds, _ in times], [seconds for _, seconds in times]))
    return found


def _in_turn(cut: Context, whole: Context, cut_first: bool) -> tuple[float, float]:
    """Return the seconds of a step of each; who comes first changes, so that a drift of the machine cancels out."""
    if cut_first:
        return _step(cut), _step(whole)
    seconds = _step(whole)
    return _step(cut), seconds


def _context(stack: ExitStack, header: Header, threads: int) -> Context:
    context = Context(stack.enter_context(Model(header)), _DEPTH + 2, threads=threads)
    context.prefill(list(range(_DEPTH)))
    for _ in range(3):
        _step(context)
    return context


def _step(context: Context) -> float:
    started = time.perf_counter()
    context.prefill([0]).argmax()
    seconds = time.perf_counter() - started
    context.truncate(_DEPTH)
    return seconds


if __name__ == "__main__":
    main()
