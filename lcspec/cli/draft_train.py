"""`lcspec draft train`: a draft head, trained on what the model itself writes."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import plotille

from lcspec.cli.completion import complete_model
from lcspec.cli.fetching import offer_to_fetch, yes_option
from lcspec.cli.options import THREADS
from lcspec.cli.progress_bar import Advance, progress_bar
from lcspec.cli.report import note, quiet_option, size_text
from lcspec.errors import LcspecError

if TYPE_CHECKING:
    from lcspec.draft_training.training import Score, Training

_PLOT_WIDTH, _PLOT_HEIGHT = 60, 10
_GB = 1e9
_CONTEXT = 1024  # tokens, to estimate the memory that is needed at least


@click.command()
@click.argument("target", shell_complete=complete_model)
@click.option(
    "--prompts",
    "prompt_files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="What to ask the model, before what it asks itself: JSON lines with 'turns', 'prompt' or 'text', "
    "or a text with a prompt in each paragraph. May be repeated.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1000, 100_000_000),
    default=300_000,
    show_default=True,
    help="Tokens for the model to write.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.01),
    default=25.0,
    show_default=True,
    help="Most minutes to train with them.",
)
@click.option(
    "--max-gb",
    type=click.FloatRange(0.001),
    default=4.0,
    show_default=True,
    help="Most disk space for what the model writes and its hidden states.",
)
@click.option("--resume/--fresh", default=True, show_default=True, help="Go on where an earlier try was stopped.")
@click.option("--keep", is_flag=True, help="Keep what the model wrote, so that a later --resume trains with it again.")
@click.option("-o", "--name", help="What the head is called [TARGET-head].")
@click.option("--force", is_flag=True, help="Replace another draft of that name.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides all that is random.")
@THREADS
@yes_option
@quiet_option
def train(
    target: str,
    prompt_files: tuple[Path, ...],
    tokens: int,
    minutes: float,
    max_gb: float,
    resume: bool,
    keep: bool,
    name: str | None,
    force: bool,
    seed: int,
    threads: int | None,
) -> None:
    """Train a draft head for TARGET.

    A small network learns to foresee the model's next tokens from its hidden states.
    The model asks itself questions and answers them first, which takes most of the time; then the head learns from
    that. Both can be stopped and gone on with. It needs PyTorch (pip install 'lcspec[train]'); what it makes does not.

    \b
    Examples:
      lcspec draft train smollm2-135m
      lcspec draft train smollm2-135m --prompts questions.jsonl --tokens 500000
    """  # noqa: D301  click needs the backspace itself
    for package in ("torch", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise LcspecError("training a draft head needs PyTorch: pip install 'lcspec[train]'")
    from lcspec.draft_figures import threads_of
    from lcspec.draft_making import check_drafting, name_of_target
    from lcspec.draft_training.head_training import HeadTraining
    from lcspec.draft_training.prompts import read_prompts
    from lcspec.hub import check_draft_is_new, check_draft_name, find_model
    from lcspec.llama import check_memory, check_whole, read_header

    own = [prompt for path in prompt_files for prompt in read_prompts(path)]
    name = f"{name_of_target(target)}-head" if name is None else name
    (check_draft_name if force else check_draft_is_new)(name)
    offer_to_fetch(target)
    header = read_header(find_model(target, download=True))
    check_whole(header)
    check_memory(header, None, _CONTEXT)
    threads = threads or threads_of(header)
    check_drafting(header, threads)
    training = HeadTraining(
        header,
        target,
        own,
        n_tokens=tokens,
        most_bytes=max_gb * _GB,
        minutes=minutes,
        seed=seed,
        threads=threads,
        fresh=not resume,
    )
    with training.alone():
        note("the model writes what its head learns from; Ctrl-C ends that, and the same command goes on with it")
        with progress_bar("writing texts", tokens) as advance:
            written = training.write_texts(advance)
        note(f"{written:,} tokens are written; the head learns from them, for {minutes:g} minutes at the most")
        with progress_bar("training") as advance:
            scores = training.train(_follower(advance))
        note(f"how often tokens were right in the course of the training:\n\n{_curve(scores)}\n")
        made = training.publish(name, force=force)
        note(
            "accepted of the first to fourth token, where those before were right, with what it copies: "
            + ", ".join(f"{share:.2f}" for share in training.acceptance)
            + f"; {training.data.coverage():.1%} of the model's tokens can be foreseen"
        )
        if not keep:
            training.clear()
    note(f"{made.name} is here: {size_text(made.path.stat().st_size)}")
    click.echo(made.path)


def _follower(advance: Advance) -> "Callable[[Training], None]":
    """Return what follows a training: the bar, and a line for each validation."""
    told = 0

    def follow(training: "Training") -> None:
        nonlocal told
        advance(training.progress)
        for score in training.scores[told:]:
            note(f"after {score.epoch} rounds {score.acceptance[0]:.3f} of the first tokens are right")
        told = len(training.scores)

    return follow


def _curve(scores: "Sequence[Score]") -> str:
    """Return a plot of how often the first and the second token were right in the course of the training."""
    figure: Any = plotille.Figure()
    figure.width, figure.height = _PLOT_WIDTH, _PLOT_HEIGHT
    figure.x_label, figure.y_label = "rounds", "right"
    figure.set_y_limits(min_=0)
    figure.x_ticks_fkt = lambda low, _: f"{low:.0f}"
    figure.y_ticks_fkt = lambda low, _: f"{low:.2f}"
    rounds = [score.epoch for score in scores]
    for depth, label in enumerate(("first token", "second token, where the first was right")):
        figure.plot(rounds, [score.acceptance[depth] for score in scores], label=label)
    return str(figure.show(legend=True))
