"""Whether it shows in a text how tokens were put together into passes, wide ones too, and how many threads did what."""

import logging
from collections.abc import Sequence

import numpy as np

from lcspec.exactness import LoadOptions, measurements_of
from lcspec.llama import MAX_WIDTH, Context, ExactWidths, Model

_log = logging.getLogger(__name__)

_KIND, _THREADS = "exact-cuts", "exact-threads"
_NARROW = 16  # where so many tokens together don't give the bits of one, more don't either
_BLOCK, _COPIES = 64, 9  # tokens of a context, and of one that is deep
_PROMPT = 256  # tokens of a prompt
_ODD = (1, 7, 64, 3, 16, 33)  # tokens of passes, if these are exact


def any_cut_is_exact(model: Model, options: LoadOptions, widths: ExactWidths) -> bool:
    """Tell whether passes of any width give the same bits, as far as a trial shows; it is remembered.

    `exact_widths` ends after a while. Here the widest pass with logits is compared with narrow ones, behind few tokens
    and many, and a prompt that is evaluated in one pass with one in odd parts.
    """
    if widths.everywhere < _NARROW:
        return False
    kept = measurements_of(model.header, options).recall(_KIND)
    if isinstance(kept, bool):
        return kept
    _log.info("trying whether wide passes of %s give the same bits as narrow ones", model.path.name)
    same = _is_same(model, options, widths)
    measurements_of(model.header, options).keep(_KIND, same)
    return same


def any_threads_are_exact(model: Model, options: LoadOptions, others: Sequence[int]) -> bool:
    """Tell whether other numbers of threads give the same bits, as far as a trial shows; it is remembered.

    llama.cpp divides rows among threads, and with Arm's matrix instructions takes two at a time where these divide
    evenly.
    """
    if set(others) == {options.threads}:
        return True
    measurements = measurements_of(model.header, options)
    kept = measurements.recall(_THREADS, others=list(others))
    if isinstance(kept, bool):
        return kept
    tokens = _some_tokens(model, _BLOCK + _NARROW)
    with Context(model, len(tokens), threads=options.threads, batch_invariant=options.batch_invariant) as context:
        same = len({_bits(context, tokens, threads) for threads in (options.threads, *others)}) == 1
    measurements.keep(_THREADS, same, others=list(others))
    return same


def _bits(context: Context, tokens: list[int], threads: int) -> tuple[bytes, ...]:
    """Return what comes of a prompt, of a pass over a token and of one over several."""
    context.clear()
    context.use_threads(threads)
    rows = [context.prefill(tokens[:_BLOCK]).tobytes()]
    rows += [context.evaluate(part).tobytes() for part in (tokens[_BLOCK : _BLOCK + 1], tokens[_BLOCK + 1 :])]
    return *rows, context.save().cells.tobytes()


def _some_tokens(model: Model, n: int) -> list[int]:
    tokens = [token for token in range(model.n_vocab) if not model.is_padding(token)][-n:]
    return (tokens * n)[:n]


def _is_same(model: Model, options: LoadOptions, widths: ExactWidths) -> bool:
    tokens = _some_tokens(model, _PROMPT)
    with Context(
        model,
        _BLOCK * (1 + _COPIES) + MAX_WIDTH,
        threads=options.threads,
        batch_invariant=options.batch_invariant,
        repeatable=True,
    ) as context:
        if not _prompt_is_same(context, tokens, widths.everywhere):
            return False
        context.clear()
        context.prefill(tokens[:_BLOCK])
        if not _rows_are_same(context, tokens[:MAX_WIDTH]):
            return False
        if not context.repeat(_COPIES):
            context.prefill(context.tokens * _COPIES)
        return _rows_are_same(context, tokens[:MAX_WIDTH])


def _prompt_is_same(context: Context, tokens: list[int], widest: int) -> bool:
    row = context.prefill(tokens).tobytes()
    cells = context.save().cells.tobytes()
    context.clear()
    number = 0
    while len(context.tokens) < len(tokens):
        start, width = len(context.tokens), min(_ODD[number % len(_ODD)], widest)
        other = context.prefill(tokens[start : start + width])
        number += 1
    return other.tobytes() == row and context.save().cells.tobytes() == cells


def _rows_are_same(context: Context, tokens: list[int]) -> bool:
    base = len(context.tokens)
    narrow = []
    for start in range(0, len(tokens), _NARROW):
        narrow.append(context.evaluate(tokens[start : start + _NARROW]).copy())
    context.truncate(base)
    wide = context.evaluate(tokens).tobytes()
    context.truncate(base)
    return wide == np.concatenate(narrow).tobytes()
