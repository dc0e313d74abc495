"""How much faster speculative decoding is than plain decoding, by kind of work.

    python -m bench.speed --model M [--draft D] [--questions FILE] [--peers] [--llama-server PATH] [--out FILE.json]
    python -m bench.speed --show FILE.json

Each question of `bench.workloads` is answered greedily by plain decoding, each drafter and auto, in rounds that run
each once and in another order. What counts is the time for each token behind the first, the prompt being in the
cache; the speed of a prompt is the ratio of the medians over the rounds, and that of a category is the median over
its prompts. Whole requests, from an empty cache, are measured once for each prompt. Then auto is compared with what
the costs of passes allow at all, and with an oracle that knows how much of each lookup draft will be accepted.

--peers adds `llama_cpp.Llama`, plain and with its prompt lookup, and --llama-server the server of llama.cpp in each
of its speculative modes. Modes that remember texts from one request to the next are asked each question only once,
from an empty cache.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from bench.peers import Contender, Run, Setting, llamas, servers
from bench.recordings import recorded
from bench.replay import curve_limit, lookup_oracle
from bench.report import AUTO, PLAIN, Answer, Results, Timing, plot, table
from bench.server_process import PeerError, end_on_signals
from bench.workloads import Question, own_work, spec_bench
from lcspec import SpeculativeLM
from lcspec.hub import find_model
from lcspec.limits import DrafterName
from lcspec.llama import machine

_INTERRUPTED = 130


@dataclass(frozen=True)
class Plan:
    """What to measure: the options of the command."""

    model: str
    draft: str | None
    questions: Path | None
    per_category: int
    repeats: int
    categories: tuple[str, ...]
    max_tokens: int | None
    threads: int | None
    peers: bool
    llama_server: Path | None

    def asked(self) -> list[Question]:
        """Return the questions of the categories that are wanted."""
        asked = own_work(self.per_category)
        if self.questions is not None:
            asked += spec_bench(self.questions, self.per_category)
        return [one for one in asked if not self.categories or any(name in one.category for name in self.categories)]

    def as_dict(self) -> dict[str, Any]:
        """Return the options as JSON types."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Own:
    """The project's own engine with one drafter.

    Attributes:
        lm: the engine.
        name: the drafter's name.
        warm: the drafter that brings a prompt into the caches.
        once: see `Contender`.
    """

    lm: SpeculativeLM
    name: DrafterName
    warm: DrafterName
    once: bool = False

    def run(self, prompt: Sequence[int], max_tokens: int, *, fresh: bool) -> Run:
        """Continue a prompt; see `Contender`.

        Where the prompt is to be in the cache, so it is in the draft model's, and nothing of an earlier answer.
        """
        if fresh:
            self.lm.clear()
        else:
            self.lm.generate(prompt, max_tokens=3, drafter=self.warm)  # 3 is the least that a draft model drafts for
        done = self.lm.generate(prompt, max_tokens=max_tokens, drafter=self.name)
        stats = done.stats
        timing = Timing(
            stats.prefill_seconds,
            stats.decode_seconds,
            stats.tokens,
            passes=stats.target_passes,
            drafted=stats.drafted,
            accepted=stats.accepted,
        )
        return Run(timing, done.tokens)


def measure(plan: Plan, questions: Sequence[Question]) -> Generator[Results, None, None]:
    """Yield what was measured so far, at first nothing, after each question."""
    with ExitStack() as stack:
        lm = stack.enter_context(SpeculativeLM(plan.model, plan.draft, threads=plan.threads, download=True))
        lm.measure_costs()
        contenders = _own(lm, plan) + _peers(lm, plan, stack)
        results = Results(
            machine(),
            {
                **plan.as_dict(),
                "threads": lm.threads,
                "n_ctx": lm.n_ctx,
                "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            },
            tuple(contender.name for contender in contenders),
            planned=len(questions),
            curve_limit=curve_limit(lm.costs),
        )
        yield results
        for turn, question in enumerate(questions):
            prompt = lm.chat_prompt(question.messages())
            max_tokens = min(question.max_tokens, plan.max_tokens or question.max_tokens)
            answer, text = _ask(contenders, question.category, prompt, max_tokens, plan.repeats, turn)
            if text:
                recording = recorded(plan.model, lm.target, question.category, prompt, text)
                answer = replace(answer, lookup_oracle=lookup_oracle(recording, lm.costs))
            results = replace(results, answers=(*results.answers, answer))
            yield results


def _own(lm: SpeculativeLM, plan: Plan) -> list[Contender]:
    names: list[DrafterName] = [PLAIN, "lookup", AUTO]
    if plan.draft is None:
        return [Own(lm, name, warm=PLAIN) for name in names]
    names.insert(2, "model")
    return [Own(lm, name, warm="model") for name in names]


def _peers(lm: SpeculativeLM, plan: Plan, stack: ExitStack) -> list[Contender]:
    setting = Setting(find_model(plan.model), lm.n_ctx, lm.threads, lm.target.is_eog)
    peers: list[Contender] = []
    if plan.peers:
        peers += stack.enter_context(llamas(setting))
    if plan.llama_server is not None:
        draft = None if plan.draft is None else find_model(plan.draft)
        peers += stack.enter_context(servers(plan.llama_server, setting, draft))
    return peers


def _ask(
    contenders: list[Contender], category: str, prompt: Sequence[int], max_tokens: int, repeats: int, turn: int
) -> tuple[Answer, tuple[int, ...]]:
    """Let the contenders answer a question; return their times and plain decoding's text.

    A contender that fails is told of and removed.
    """

    def a_round(those: list[Contender], turn: int, *, fresh: bool) -> dict[str, Run]:
        def run(contender: Contender) -> Run:
            return contender.run(prompt, max_tokens, fresh=fresh)

        done, failed = run_round(those, run, turn)
        for contender in failed:
            contenders.remove(contender)
        return done

    asked_whole = [one for one in contenders if not isinstance(one, Own) or one.name in (PLAIN, AUTO)]
    whole = a_round(asked_whole, turn, fresh=True)
    rounds = [
        a_round([one for one in contenders if not one.once], turn + i, fresh=False) for i in range(1, repeats + 1)
    ]
    runs = {name: [done[name] for done in rounds if name in done] or [whole[name]] for name in {**whole, **rounds[0]}}
    same = {name: all(run.text == runs[PLAIN][0].text for run in those) for name, those in runs.items()}
    answer = Answer(
        category,
        prompt_tokens=len(prompt),
        rounds={name: tuple(run.timing for run in those) for name, those in runs.items()},
        whole={name: run.timing for name, run in whole.items()},
        same_text=same,
    )
    return answer, runs[PLAIN][0].text


def run_round(
    contenders: Sequence[Contender], run: Callable[[Contender], Run], turn: int
) -> tuple[dict[str, Run], list[Contender]]:
    """Run each contender once, from another one on in each turn; return the runs by name, and who failed."""
    first = turn % len(contenders)
    done: dict[str, Run] = {}
    failed: list[Contender] = []
    for contender in (*contenders[first:], *contenders[:first]):
        try:
            done[contender.name] = run(contender)
        except PeerError as error:
            click.echo(f"{error}; going on without {contender.name}", err=True)
            failed.append(contender)
    return done, failed


def progress(results: Results, questions: Sequence[Question], seconds: float) -> str:
    """Return a line that says which question is next and how long the rest may take."""
    done = len(results.answers)
    if done == len(questions):
        return f"{done} questions in {_duration(seconds)}"
    left = "" if not done else f", about {_duration(seconds / done * (len(questions) - done))} left"
    return f"{done + 1} of {len(questions)}: {questions[done].category}{left}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def report(results: Results, file: Path | None) -> None:
    """Print the table, and draw the plot beside the file of the results."""
    click.echo(table(results))
    if file is None or not results.answers:
        return
    try:
        plot(results, file.with_suffix(".svg"))
    except ImportError:
        click.echo("there is no plot without matplotlib: pip install matplotlib", err=True)


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True)
@click.option("--draft", help="A draft model.")
@click.option(
    "--questions", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Spec-Bench's questions."
)
@click.option("--per-category", type=click.IntRange(1), default=5, show_default=True, help="Questions of each.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Rounds for each question.")
@click.option("--category", "categories", multiple=True, help="Only those with this in the name. Can be repeated.")
@click.option("--max-tokens", type=click.IntRange(2), help="Cut answers off earlier.")
@click.option("--threads", type=click.IntRange(1), help="For all contenders [the usable physical cores].")
@click.option("--peers", is_flag=True, help="Time llama_cpp.Llama, too.")
@click.option("--llama-server", type=click.Path(path_type=Path), help="A llama-server to time, too.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Results, as JSON; the plot goes beside.")
@click.option("--show", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Report an earlier --out.")
def main(out: Path | None, show: Path | None, **options: Any) -> None:
    if show is not None:
        report(Results.read(show), show)
        return
    plan = Plan(**options)
    questions = plan.asked()
    if not questions:
        raise click.UsageError("no category has that in its name")
    end_on_signals()
    results, started = None, 0.0
    interrupted = False
    with closing(measure(plan, questions)) as measured:
        try:
            for results in measured:
                started = started or time.monotonic()
                if out is not None:
                    results.write(out)
                click.echo(progress(results, questions, time.monotonic() - started), err=True)
        except KeyboardInterrupt:
            interrupted = True
    if results is not None:
        report(results, out)
    if interrupted:
        raise SystemExit(_INTERRUPTED)


if __name__ == "__main__":
    main()
