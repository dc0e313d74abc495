"""`lcspec inspect`: what a model file is, and how wide its passes may be."""

import json
from typing import Any

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.options import THREADS
from lcspec.cli.report import note, quiet_option, size_text
from lcspec.exactness import LoadOptions, exact_widths, fastest_exact_options
from lcspec.hub import find_model
from lcspec.llama import (
    SHALLOW,
    Context,
    ExactWidths,
    Model,
    check_memory,
    memory_need,
    read_header,
    usable_physical_cores,
)

_CONTEXT = 4096
_PROBED = 1536  # tokens of context, no fewer than a probe takes


@click.command()
@click.argument("model", shell_complete=complete_model)
@THREADS
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@quiet_option
def inspect(model: str, threads: int | None, as_json: bool) -> None:
    """Say what MODEL is, what it needs, and how wide a pass may be to be exact.

    A pass over several tokens is exact when it gives, bit for bit, the logits of evaluating them one by one.
    How wide it may be is probed on this machine (a few seconds, the first time).

    \b
    Examples:
      lcspec inspect smollm2-135m
      lcspec inspect ./any-model.gguf --json
    """  # noqa: D301  click needs the backspace itself
    facts = _facts(model, threads or usable_physical_cores())
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    rows = _rows(facts)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:>{width}}  {value}")
    if not facts["chat_template"]:
        note("it has no chat template: it can only continue a text")


def _facts(name: str, threads: int) -> dict[str, Any]:
    header = read_header(find_model(name))
    check_memory(header, None, _PROBED)
    need = memory_need(header, _CONTEXT)
    exact = fastest_exact_options(header, threads)
    default = LoadOptions(repack=True, batch_invariant=False, threads=threads)
    with Model(header) as model:
        with Context(model, 256, threads=threads) as context:
            can_truncate = context.can_truncate
        facts = {
            "files": [str(file) for file in header.files],
            "size": header.file_size,
            "architecture": model.architecture,
            "description": model.description,
            "parameters": model.n_params,
            "context": model.n_ctx_train,
            "vocabulary": {
                "tokens": model.n_vocab,
                "kind": str(header.metadata.get("tokenizer.ggml.model", "unknown")),
                "pre_tokenizer": model.pre_tokenizer,
                "bos": model.bos,
                "eos": model.eos,
                "eot": model.eot,
            },
            "chat_template": model.chat_template is not None,
            "can_truncate": can_truncate,
            "is_repacked": model.is_repacked,
            "memory": {"context": _CONTEXT, "weights": need.weights, "cache": need.cache, "buffers": need.buffers},
            "threads": threads,
            "exact_widths": exact_widths(model, default).as_dict(),
        }
    with Model(header, repack=exact.repack) as model:
        widths = exact_widths(model, exact)
    return facts | {"exact": {"repack": exact.repack, "exact_widths": widths.as_dict()}}


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    vocabulary, memory = facts["vocabulary"], facts["memory"]
    special = ", ".join(f"{name} {vocabulary[name]}" for name in ("bos", "eos", "eot") if vocabulary[name] is not None)
    total = memory["weights"] + memory["cache"] + memory["buffers"]
    return [
        ("file", " ".join(facts["files"])),
        ("model", f"{facts['description']}, {facts['parameters']:,} parameters, {size_text(facts['size'])}"),
        ("trained for", f"{facts['context']:,} tokens of context"),
        (
            "vocabulary",
            f"{vocabulary['tokens']:,} tokens, {vocabulary['kind']}, pre-tokenizer {vocabulary['pre_tokenizer']}"
            + (f" ({special})" if special else ""),
        ),
        ("chat template", "yes" if facts["chat_template"] else "no"),
        ("cache", "can be truncated" if facts["can_truncate"] else "can't be truncated: no drafts"),
        (
            "memory",
            f"{size_text(total)} with {memory['context']:,} tokens of context (weights {size_text(memory['weights'])}, "
            f"cache {size_text(memory['cache'])}, buffers {size_text(memory['buffers'])})",
        ),
        ("exact passes", _widths_text(ExactWidths(**facts["exact_widths"]), facts["threads"])),
        (
            "with --exact",
            _widths_text(ExactWidths(**facts["exact"]["exact_widths"]), facts["threads"])
            + (", weights laid out anew" if facts["is_repacked"] and facts["exact"]["repack"] else ""),
        ),
    ]


def _widths_text(widths: ExactWidths, threads: int) -> str:
    if widths.shallow == widths.deep:
        text = f"up to {widths.deep} tokens at any depth"
    else:
        text = f"up to {widths.shallow} tokens within {SHALLOW} of context, {widths.deep} beyond"
    return f"{text} (probed with {threads} threads)"
