"""What commands say on standard error."""

import click

from lcspec.stats import Stats
from lcspec.stream import Completion


def note(message: str) -> None:
    """Print a quiet line about what happens."""
    click.secho(f"lcspec: {message}", err=True, dim=True)


def summary(stats: Stats) -> str:
    """Return one line: how fast, and why."""
    line = f"{stats.tokens:,} tokens, {stats.tokens_per_second:,.1f} tokens/s"
    if not stats.target_passes:
        return line
    if not stats.drafters:
        return f"{line}, one token a pass: nothing was drafted"
    shares = ", ".join(
        f"{name} drafted {share.drafted:,} of which {share.accepted:,} were right"
        for name, share in stats.drafters.items()
    )
    return f"{line}, {stats.tokens_per_pass:.2f} tokens a pass: {shares}"


def details(completion: Completion) -> str:
    """Return the statistics of a completion, a line each."""
    stats = completion.stats
    rows = [
        ("prompt", f"{stats.prompt_tokens:,} tokens, {stats.cached_tokens:,} of them cached"),
        ("first token after", f"{stats.prefill_seconds:.3f} s"),
        ("decoding", f"{stats.tokens - 1:,} tokens in {stats.decode_seconds:.3f} s"),
        ("", f"{stats.tokens_per_second:,.1f} tokens/s"),
        ("target passes", f"{stats.target_passes:,}, {stats.tokens_per_pass:.2f} tokens each"),
        ("ended by", completion.finish_reason),
    ]
    for name, share in stats.drafters.items():
        rate = share.accepted / share.drafted
        rows.append(
            (
                name,
                f"{share.drafts:,} drafts, {share.drafted:,} tokens, {share.accepted:,} accepted ({rate:.0%})",
            )
        )
    return "\n".join(f"{name:>18}  {value}" for name, value in rows)
