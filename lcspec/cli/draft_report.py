"""What is said of drafts: what a search found, and what a draft is expected to bring."""

import math

import plotille

from lcspec.cli.report import table
from lcspec.draft_figures import Figures
from lcspec.layer_search import Frontier
from lcspec.planner import Gain

_PLOT_WIDTH, _PLOT_HEIGHT = 60, 12
_FEWEST_TO_PLOT = 3  # points


def frontier_text(frontier: Frontier, chosen: tuple[int, ...], total: int, *, asked: bool) -> str:
    """Return the frontier as a table and a plot, and why these blocks were chosen."""
    rows = [
        (
            str(len(point.kept)),
            f"{point.cost:.2f}",
            f"{point.score.agreement:.2f}",
            f"{point.gain.speed:.2f}",
            str(point.gain.tokens),
            left_out(point.kept, total),
            "chosen" if point.kept == chosen else "",
        )
        for point in frontier.points
    ]
    head = ("BLOCKS", "COST", "RIGHT", "SPEED", "DRAFT", "WITHOUT", "")
    plot = [_plot(frontier)] if len(rows) >= _FEWEST_TO_PLOT else []
    return "\n\n".join([table(head, rows), *plot, _reason(frontier, chosen, total, asked)])


def left_out(kept: tuple[int, ...], total: int) -> str:
    """Return the blocks that are not kept, such as '3-5, 9'."""
    spans: list[list[int]] = []
    for block in sorted(set(range(total)) - set(kept)):
        if spans and spans[-1][1] == block - 1:
            spans[-1][1] = block
        else:
            spans.append([block, block])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _plot(frontier: Frontier) -> str:
    figure = plotille.Figure()
    figure.width, figure.height = _PLOT_WIDTH, _PLOT_HEIGHT
    costs = [point.cost for point in frontier.points]
    low, high = math.floor(10 * min(costs)) / 10, 1.0
    figure.set_x_limits(min_=low, max_=max(high, max(costs)))
    figure.set_y_limits(min_=0, max_=1)
    figure.x_label, figure.y_label = "cost of a token, in target passes", "share that is right"
    figure.x_ticks_fkt = figure.y_ticks_fkt = lambda value, _: f"{value:.2f}"
    figure.plot(costs, [point.score.agreement for point in frontier.points])
    return str(figure.show())


def _reason(frontier: Frontier, chosen: tuple[int, ...], total: int, asked: bool) -> str:
    point = next(one for one in frontier.points if one.kept == chosen)
    best = frontier.best
    said = (
        f"With {len(chosen)} of {total} blocks a draft token costs {point.cost:.2f} of a target pass and is right in "
        f"{point.score.agreement:.0%} of cases; drafts of {_tokens(point.gain)} would give {point.gain.speed:.2f} "
        "times plain decoding."
    )
    if asked and best.kept != chosen:
        said += f"\nMost would be given by {len(best.kept)} blocks: {best.gain.speed:.2f} times plain decoding."
    if not asked:
        said += "\nThat is the most that any number of blocks gives by what passes cost on this machine."
    if not best.gain.pays:
        said += "\nNone pays on this machine: plain decoding is faster than with any of them."
    return said


def verdict(name: str, figures: Figures) -> str:
    """Return in words what a draft costs, how often it is right, and whether that pays."""
    if figures.cost is None or not figures.acceptance:
        return f"{name} was not measured: `lcspec draft list --measure` does."
    said = [
        f"A token of {name} costs {figures.cost:.2f} of a target pass; behind right ones it is right in "
        f"{', '.join(f'{one:.0%}' for one in figures.acceptance)} of cases at depths 1 to {len(figures.acceptance)}."
    ]
    if figures.here is not None:
        said.append(
            f"It pays on this machine: drafts of {_tokens(figures.here)} are expected to give "
            f"{figures.here.speed:.2f} times plain decoding."
            if figures.here.pays
            else f"It does not pay on this machine, and stays off: drafts of {_tokens(figures.here)} would give "
            f"{figures.here.speed:.2f} times plain decoding."
        )
    if figures.elsewhere:
        said.append(
            "Under assumed cost curves of other machines: "
            + ", ".join(f"{gain.speed:.2f} ({name})" for name, gain in figures.elsewhere.items())
            + "."
        )
    return "\n".join(said)


def _tokens(gain: Gain) -> str:
    return "1 token" if gain.tokens == 1 else f"{gain.tokens} tokens"
