"""`lcspec tune`: what passes cost on this machine, and what that means."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import plotille

from lcspec.cli.completion import complete_model
from lcspec.cli.draft_report import verdict
from lcspec.cli.fetching import offer_to_fetch, yes_option
from lcspec.cli.report import note, quiet_option, table
from lcspec.costs import keep_costs, measure_costs
from lcspec.draft_figures import Figures, best_draft, threads_of
from lcspec.draft_measuring import measure_draft
from lcspec.exactness import LoadOptions
from lcspec.hub import find_model
from lcspec.layer_search import Texts
from lcspec.limits import AUTO_DRAFT
from lcspec.llama import Header, Model, check_memory, read_header
from lcspec.planner import CostCurve, LayoutChoice, break_even
from lcspec.tuning import Tuning
from lcspec.tuning import tune as tune_file

_CONTEXT = 2048
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_PLOT_WIDTH, _PLOT_HEIGHT = 70, 12


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.option(
    "-d",
    "--draft",
    metavar="MODEL",
    shell_complete=complete_model,
    help="A draft model, to say whether it pays; auto is the best that was measured.",
)
@click.option(
    "--seconds", type=click.FloatRange(1), default=40.0, show_default=True, help="About how long to measure a curve."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@yes_option
@quiet_option
def tune(model: str, draft: str | None, seconds: float, as_json: bool) -> None:
    """Measure what passes of MODEL cost on this machine, and choose threads and weight layout.

    All is kept, and used from then on. Keep the machine quiet meanwhile.

    \b
    Examples:
      lcspec tune smollm2-135m
      lcspec tune qwen2.5-coder-1.5b -d qwen2.5-coder-0.5b
    """  # noqa: D301  click needs the backspace itself
    offer_to_fetch(model)
    target = read_header(find_model(model, download=True))
    if draft == AUTO_DRAFT:
        draft = _best(target)
    if draft is not None:
        offer_to_fetch(draft)
    draft_header = None if draft is None else read_header(find_model(draft, download=True))
    check_memory(target, draft_header, _CONTEXT)
    tuning = tune_file(target, seconds, note)
    tuned_draft = None
    if draft is not None and draft_header is not None:
        costs = _measure_draft(draft_header, tuning.chosen.threads, seconds)
        samples = Texts(target, (), tuning.chosen.threads).judged
        note("measuring how often the draft model is right")
        tuned_draft = TunedDraft(
            draft_header.files[0].stem, costs, measure_draft(target, draft_header, samples, tuning.chosen.threads)
        )
    if as_json:
        click.echo(json.dumps(_facts(tuning, tuned_draft), indent=2))
    else:
        click.echo("\n\n".join([_trials(tuning), _costs(tuning), _plot(tuning), _verdict(tuning, tuned_draft)]))


def _best(target: Header) -> str | None:
    """Return the file of the draft that brings most, if one pays."""
    path, reason = best_draft(target, threads_of(target))
    note(reason)
    return None if path is None else str(path)


@dataclass(frozen=True)
class TunedDraft:
    """A draft model: its name, what its passes cost, and what is to be expected of it."""

    name: str
    costs: CostCurve
    figures: Figures


def _measure_draft(header: Header, threads: int, seconds: float) -> CostCurve:
    note("measuring the draft model")
    options = LoadOptions(repack=True, batch_invariant=False, threads=threads)
    with Model(header) as model:
        costs = measure_costs(model, options, seconds) or CostCurve()
    keep_costs(header, options, costs)
    return costs


def _trials(tuning: Tuning) -> str:
    rows = [
        (
            str(trial.options.threads),
            "laid out anew" if trial.options.repack and tuning.has_two_layouts else "as in the file",
            f"{1000 * trial.single:.1f} ms",
            f"{1000 * trial.drafted:.1f} ms",
            "chosen" if trial.options == tuning.chosen else "",
        )
        for trial in tuning.trials
    ]
    return table(("THREADS", "WEIGHTS", "1 TOKEN", "4 TOKENS", ""), rows)


def _costs(tuning: Tuning) -> str:
    curves = [tuning.costs] + ([] if tuning.other_costs is None else [tuning.other_costs])
    single = tuning.costs.seconds(1)
    head = ["TOKENS", "PASS", "IN SINGLE PASSES", "SPEED IF ALL ARE RIGHT"]
    rows = []
    for width in _WIDTHS:
        if width > max(tuning.costs.measured):
            break
        row = [str(width)]
        for curve in curves:
            seconds = curve.seconds(width)
            row += [f"{1000 * seconds:.1f} ms", f"{seconds / single:.2f}", f"{width * single / seconds:.2f}"]
        rows.append(row)
    if len(curves) > 1:
        head += ["AS IN THE FILE", "IN SINGLE PASSES", "SPEED"]
    return table(head, rows)


def _plot(tuning: Tuning) -> str:
    figure = plotille.Figure()
    figure.width, figure.height = _PLOT_WIDTH, _PLOT_HEIGHT
    figure.set_x_limits(min_=0, max_=7)
    figure.x_label, figure.y_label = "tokens of a pass", "speed if all are right"
    figure.x_ticks_fkt = lambda low, _: f"{2**low:.0f}"
    figure.y_ticks_fkt = lambda low, _: f"{low:.1f}"
    single = tuning.costs.seconds(1)
    named = [("weights laid out anew" if tuning.other_costs else "", tuning.costs)]
    if tuning.other_costs is not None:
        named.append(("as in the file", tuning.other_costs))
    highest = 1.0
    for name, curve in named:
        widths = list(range(1, max(curve.measured) + 1))
        speeds = [width * single / curve.seconds(width) for width in widths]
        figure.plot([math.log2(width) for width in widths], speeds, label=name)
        highest = max(highest, *speeds)
    figure.set_y_limits(min_=0, max_=math.ceil(highest))
    return str(figure.show(legend=len(named) > 1))


def _verdict(tuning: Tuning, draft: TunedDraft | None) -> str:
    return "\n".join(_sentences(tuning, draft))


def _sentences(tuning: Tuning, draft: TunedDraft | None) -> Sequence[str]:
    """Say in words what is used from now on, and why."""
    costs, chosen = tuning.costs, tuning.chosen
    single = costs.seconds(1)
    limit = costs.best_speedup()
    said = [
        f"{chosen.threads} threads are used: {1 / single:.1f} tokens/s one by one.",
        f"Drafts bring {limit:.2f} times that at the most, if all of their tokens are right.",
        f"A second token in a pass costs {costs.seconds(2) / single - 1:.2f} of one alone, so a draft token has to be "
        "right more often than that.",
    ]
    if tuning.other_costs is not None and tuning.prefill_speedup is not None:
        helps = tuning.prefill_speedup >= LayoutChoice.LEAST_GAIN
        said.append(
            f"Prompts are evaluated {tuning.prefill_speedup:.2f} times as fast with the weights as the file has them: "
            + ("long ones will be." if helps else "too little to load them twice.")
        )
    if draft is not None:
        said += [_of_draft(costs, draft.costs), *verdict(draft.name, draft.figures).split("\n")]
    return said


def _of_draft(costs: CostCurve, draft: CostCurve) -> str:
    ratio = draft.seconds(1) / costs.seconds(1)
    chance = break_even(costs, draft)
    pays = "can't pay, and will stay off" if chance is None else f"pays where {chance:.0%} of its tokens are right"
    return f"A draft token costs {ratio:.2f} of a target pass: the draft model {pays}."


def _facts(tuning: Tuning, draft: TunedDraft | None) -> dict[str, Any]:
    return {
        "threads": tuning.chosen.threads,
        "repack": tuning.chosen.repack,
        "trials": [
            {
                "threads": trial.options.threads,
                "repack": trial.options.repack,
                "seconds": {"1": trial.single, "4": trial.drafted},
            }
            for trial in tuning.trials
        ],
        "costs": tuning.costs.as_dict(),
        "other_costs": None if tuning.other_costs is None else tuning.other_costs.as_dict(),
        "prefill_speedup": tuning.prefill_speedup,
        "draft_costs": None if draft is None else draft.costs.as_dict(),
        "draft_acceptance": None if draft is None else list(draft.figures.acceptance),
        "reasons": list(_sentences(tuning, draft)),
    }
