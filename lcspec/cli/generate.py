"""`lcspec generate`: one prompt, one text."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lcspec.cli.completion import complete_template
from lcspec.cli.options import engine_options, load_engine, sampling_options, split_sampling
from lcspec.cli.report import INTERRUPTED, print_statistics, print_text, report_options, write
from lcspec.tasks.templates import find_template, staged_diff

if TYPE_CHECKING:
    from lcspec.engine import StreamOptions


@click.command()
@click.argument("prompt", nargs=-1)
@click.option(
    "--template",
    metavar="NAME",
    shell_complete=complete_template,
    help="Put the text into the template of a frequent task: `lcspec templates` lists them.",
)
@click.option(
    "-p", "--param", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter of the template; repeatable."
)
@click.option("-s", "--system", metavar="TEXT", help="A system message, before the prompt.")
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
    template: str | None,
    parameters: tuple[str, ...],
    system: str | None,
    max_tokens: int | None,
    stop: tuple[str, ...],
    raw: bool,
    logprobs: int | None,
    as_json: bool,
    stats: bool,
    **options: Any,
) -> None:
    """Generate text from PROMPT; '-' in it, or no PROMPT at all, is standard input.

    A model that is not here is fetched: on a terminal after a question, which --yes answers, otherwise at once
    (HF_HUB_OFFLINE=1 forbids that).

    \b
    Examples:
      lcspec generate "Why is the sky blue?"
      lcspec generate "Correct the spelling:" - < letter.txt
      lcspec generate --template translate -p language=German < letter.txt
      git add -p && lcspec generate --template commit-message
      lcspec generate --temp 0.8 --seed 7 -n 200 "Tell me a story."
      echo "def fib(n):" | lcspec generate --raw -n 60
    """  # noqa: D301  click needs the backspace itself
    if logprobs is not None and not as_json:
        raise click.UsageError("--logprobs needs --json, where they are printed")
    if "" in stop:
        raise click.UsageError("--stop needs a text that is not empty")
    if raw and system is not None:
        raise click.UsageError("--raw has no place for a --system message: write it into the prompt")
    if template is None:
        if parameters:
            raise click.UsageError("--param needs a --template")
        text = _read_prompt(prompt)
        if not raw and not text.strip():
            raise click.ClickException("the prompt is empty: there is nothing to answer")
    else:
        of_template, text = _fill(template, prompt, dict(map(_parameter, parameters)))
        system = of_template if system is None else system
        if raw and system is not None:
            text = f"{system}\n\n{text}"
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": text})
    sampling, engine_options = split_sampling(options)
    wanted: StreamOptions = {**sampling, "max_tokens": max_tokens, "stop": stop, "logprobs": logprobs}
    with load_engine(**engine_options) as engine:
        stream = engine.stream(text if raw else engine.chat_prompt(messages), **wanted)
        interrupted = print_text(stream, silent=as_json)
        completion = stream.completion
    if as_json:
        write(json.dumps(completion.as_dict(), ensure_ascii=False) + "\n")
    elif sys.stdout.isatty():
        click.echo()
    print_statistics(completion, full=stats)
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _fill(name: str, prompt: tuple[str, ...], parameters: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the system message and the prompt that a template makes of what the user gave."""
    template = find_template(name)
    template.check(parameters)
    text = _read_prompt(prompt) if prompt or not sys.stdin.isatty() else ""
    if template.git_diff and not prompt and not text.strip():
        text = staged_diff()
    return template.fill(text, parameters)


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--param takes NAME=VALUE, not {text!r}")
    return name.strip(), value


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
