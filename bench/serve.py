"""How the server does under load: tokens a second, the time to the first one, and how long texts stand still.

    python -m bench.serve --model M [--questions FILE] [--llama-server PATH] [--clients 1,2,4,8,16] [--out FILE.json]

Clients ask a server at once, each its next question when it has its answer: questions of `bench.workloads` of all
kinds ('mixed'), and edits only ('editing'). The contenders are `lcspec serve` with drafts and without, and maybe
llama-server with the same file, threads and context for each client. All of them run all of the time; in each round
every one is asked the same questions, in another order, and what counts are the medians over the rounds. Each run's
conversations begin with a mark of its own, since all servers keep what they have evaluated.
"""

import json
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench.load import ALIAS, Run, run_clients
from bench.report import SERVER
from bench.server_process import PeerError, end_on_signals, free_port, server_process
from bench.workloads import Question, own_work, spec_bench
from lcspec.batching.target import Target
from lcspec.hub import find_model
from lcspec.llama import machine, usable_physical_cores

DRAFTING, PLAIN = "lcspec", "lcspec without drafts"
KINDS = _MIXED, _EDITING = "mixed", "editing"


@dataclass(frozen=True)
class Plan:
    """What to measure: the options of the command."""

    model: str
    questions: Path | None
    kinds: tuple[str, ...]
    llama_server: Path | None
    clients: tuple[int, ...]
    rounds: int
    each: int
    max_tokens: int
    n_ctx: int
    threads: int

    def loads(self) -> list[tuple[str, int]]:
        """Return the kinds of work, each with each number of clients."""
        return list(product(self.kinds or KINDS, self.clients))

    def asked(self, kind: str, clients: int) -> list[Question]:
        """Return what the clients ask together: questions of many categories, evenly chosen."""
        found = own_work(self.each)
        if self.questions is not None:
            found += spec_bench(self.questions, self.each)
        if kind == _EDITING:
            found = [question for question in found if question.category.startswith("edit")]
        wanted = max(4, self.each * clients)
        step = max(1, len(found) // wanted)
        chosen = found[::step]
        return [chosen[i % len(chosen)] for i in range(wanted)]


@dataclass(frozen=True)
class Measured:
    """One contender under one load.

    Attributes:
        kind: of work.
        clients: how many.
        contender: its name.
        runs: one a round.
    """

    kind: str
    clients: int
    contender: str
    runs: tuple[Run, ...]

    @property
    def throughput(self) -> float:
        """Tokens a second of all clients, the median of the rounds."""
        return median(run.throughput for run in self.runs)

    @property
    def first_seconds(self) -> float:
        """Seconds to the first text, the median of the rounds' medians."""
        return median(run.first_seconds for run in self.runs)

    @property
    def longest_wait(self) -> float:
        """The most seconds that any text stood still."""
        return max(run.longest_wait for run in self.runs)


@contextmanager
def contenders(plan: Plan) -> Iterator[dict[str, int]]:
    """Start all servers; return their ports by name."""
    most = max(plan.clients)
    path = str(find_model(plan.model, download=True))
    given = ("--alias", ALIAS, "--threads", str(plan.threads), "-c", str(plan.n_ctx * most), "--parallel", str(most))
    _measure_costs(path, plan)
    ports = {}
    with ExitStack() as stack:

        def start(name: str, *command: str) -> None:
            ports[name] = port = free_port()
            stack.enter_context(server_process(name, (*command, *given, "--port", str(port)), port))

        for name, drafter in (DRAFTING, "auto"), (PLAIN, "none"):
            start(name, sys.executable, "-m", "lcspec", "serve", "-m", path, "--drafter", drafter)
        if plan.llama_server is not None:
            batch = ("--threads-batch", str(plan.threads))
            start(SERVER, str(plan.llama_server), "--model", path, "--no-webui", "--cache-ram", "0", *batch)
        yield ports


def _measure_costs(path: str, plan: Plan) -> None:
    """Measure what passes cost, unless that is known: no server should do that while another one is timed."""
    target = Target(path, n_ctx=plan.n_ctx, max_sequences=1, threads=plan.threads, exact=False, download=False)
    target.measure_costs(lambda: False)
    target.close()


def measure(plan: Plan) -> Generator[list[Measured], None, None]:
    """Yield what was measured so far, after each round of a load."""
    with contenders(plan) as ports:
        done: list[Measured] = []
        for kind, clients in plan.loads():
            questions = plan.asked(kind, clients)
            runs: dict[str, list[Run]] = {name: [] for name in ports}
            for turn in range(plan.rounds):
                names = list(ports)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    mark = f"This is conversation {turn + 1} of {clients}."
                    runs[name].append(run_clients(ports[name], clients, questions, plan.max_tokens, mark))
                yield [*done, *_measured(kind, clients, runs)]
            done += _measured(kind, clients, runs)


def _measured(kind: str, clients: int, runs: dict[str, list[Run]]) -> list[Measured]:
    return [Measured(kind, clients, name, tuple(those)) for name, those in runs.items()]


def table(measured: Sequence[Measured]) -> str:
    """Return a table with a line for each contender under each load."""
    lines = [
        f"{'work':<9}{'clients':>7}  {'contender':<24}{'tokens/s':>9}{'against no drafts':>19}"
        f"{'first text':>12}{'longest wait':>14}"
    ]
    plain = {(one.kind, one.clients): one.throughput for one in measured if one.contender == PLAIN}
    for one in measured:
        ratio = one.throughput / plain[one.kind, one.clients] if (one.kind, one.clients) in plain else None
        lines.append(
            f"{one.kind:<9}{one.clients:>7}  {one.contender:<24}{one.throughput:>9.1f}"
            f"{'' if ratio is None else format(ratio, '.2f'):>19}{one.first_seconds * 1e3:>9.0f} ms"
            f"{one.longest_wait * 1e3:>11.0f} ms"
        )
    return "\n".join(lines)


def _clients(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(number) for number in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of numbers such as 1,2,4") from None
    if min(numbers) < 1 or max(numbers) > 64:
        raise click.BadParameter("1 to 64 clients can ask at once")
    return numbers


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True)
@click.option(
    "--questions", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Spec-Bench's questions."
)
@click.option("--work", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this; can be repeated.")
@click.option("--llama-server", type=click.Path(exists=True, path_type=Path), help="A llama-server to time, too.")
@click.option("--clients", default="1,2,4,8,16", show_default=True, callback=_clients, help="How many ask at once.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--each", type=click.IntRange(1), default=2, show_default=True, help="Questions for each client.")
@click.option("--max-tokens", type=click.IntRange(2), default=100, show_default=True, help="Cut answers off there.")
@click.option("--ctx", "n_ctx", type=click.IntRange(64), default=2048, show_default=True, help="For each client.")
@click.option("--threads", type=click.IntRange(1), default=usable_physical_cores, help="Of each server.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Results, as JSON.")
def main(out: Path | None, **options: Any) -> None:
    plan = Plan(**options)
    end_on_signals()
    measured: list[Measured] = []
    rounds = len(plan.loads()) * plan.rounds
    try:
        for i, measured in enumerate(measure(plan), 1):
            last = measured[-1]
            click.echo(f"{i} of {rounds}: {last.kind}, {last.clients} clients", err=True)
            if out is not None:
                results = {"machine": machine(), "options": {**asdict(plan), "questions": str(plan.questions)}}
                out.write_text(json.dumps(results | {"measured": [*map(asdict, measured)]}, default=str, indent=1))
    except PeerError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted: this is what there is", err=True)
    click.echo(table(measured))


if __name__ == "__main__":
    main()
