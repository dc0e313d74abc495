"""`lcspec generate`: one prompt, one text."""

import json
import sys
from typing import Any

import click

from lcspec.cli.options import engine_options, load_engine, sampling_options, split_sampling
from lcspec.cli.report import INTERRUPTED, print_statistics, print_text, report_options
from lcspec.engine import StreamOptions


@click.command()
@click.argument("prompt", nargs=-1)
@engine_options
@sampling_options
@click.option("-n", "--max-tokens", type=click.IntRange(0), help="Most tokens to generate [what the context holds].")
@click.option("--stop", multiple=True, metavar="TEXT", help="End the text before TEXT; can be repeated.")
@click.option("--raw", is_flag=True, help="Give the prompt to the model as it is, without its chat template.")
@click.option(
    "--logprobs",
    type=click.IntRange(0),
    metavar="N",
    help="In --json, each token's log-probability and the N likeliest.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
@report_options
def generate(
    prompt: tuple[str, ...],
    max_tokens: int | None,
    stop: tuple[str, ...],
    raw: bool,
    logprobs: int | None,
    as_json: bool,
    stats: bool,
    **options: Any,
) -> None:
    """Generate text from PROMPT; '-' in it, or no PROMPT at all, is standard input.

    \b
    Examples:
      lcspec generate "Why is the sky blue?"
      lcspec generate "Correct the spelling:" - < letter.txt
      echo "def fib(n):" | lcspec generate --raw -n 60
    """  # noqa: D301  click needs the backspace itself
    text = _read_prompt(prompt)
    if logprobs is not None and not as_json:
        raise click.UsageError("--logprobs needs --json, where they are printed")
    if "" in stop:
        raise click.UsageError("--stop needs a text that is not empty")
    sampling, engine_options = split_sampling(options)
    wanted: StreamOptions = {**sampling, "max_tokens": max_tokens, "stop": stop, "logprobs": logprobs}
    with load_engine(**engine_options) as engine:
        tokens = text if raw else engine.chat_prompt([{"role": "user", "content": text}])
        stream = engine.stream(tokens, **wanted)
        interrupted = print_text(stream, silent=as_json)
        completion = stream.completion
    if as_json:
        click.echo(json.dumps(completion.as_dict(), ensure_ascii=False))
    elif sys.stdout.isatty():
        click.echo()
    print_statistics(completion, full=stats)
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _read_prompt(parts: tuple[str, ...]) -> str:
    """Join the parts, '-' standing for standard input; without parts, read standard input if it is piped."""
    if not parts and sys.stdin.isatty():
        raise click.UsageError("there is no PROMPT: give one, or pipe text in")
    return "\n\n".join(_read_standard_input() if part == "-" else part for part in parts or ("-",))


def _read_standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"standard input is not UTF-8 text (byte {error.start:,})") from error
