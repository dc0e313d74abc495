"""Whether it shows in a text how its prompt was cut into passes."""

import logging

from lcspec.exactness import LoadOptions, measurements_of
from lcspec.llama import Context, ExactWidths, Model

_log = logging.getLogger(__name__)

_KIND = "exact-cuts"
_WIDE = 16  # where so many tokens together don't give the bits of one, all of a prompt does not either
_TRIED = 256  # tokens of the prompt
_ODD = (1, 7, 64, 3, 16, 33)  # tokens of passes, if these are exact


def any_cut_is_exact(model: Model, options: LoadOptions, widths: ExactWidths) -> bool:
    """Tell whether a prompt gives the same bits however it is cut, as far as a trial shows; it is remembered.

    A long prompt is evaluated in one pass and in odd ones.
    """
    if widths.everywhere < _WIDE:
        return False
    kept = measurements_of(model.header, options).recall(_KIND)
    if isinstance(kept, bool):
        return kept
    _log.info("trying whether %s gives the same bits however a prompt is cut", model.path.name)
    same = _is_same(model, options, widths)
    measurements_of(model.header, options).keep(_KIND, same)
    return same


def _is_same(model: Model, options: LoadOptions, widths: ExactWidths) -> bool:
    tokens = [token for token in range(model.n_vocab) if not model.is_padding(token)][-_TRIED:]
    tokens = (tokens * _TRIED)[:_TRIED]
    with Context(model, _TRIED + 1, threads=options.threads, batch_invariant=options.batch_invariant) as context:
        row = context.prefill(tokens).tobytes()
        cells = context.save().cells.tobytes()
        context.clear()
        start, number = 0, 0
        while start < len(tokens):
            width = min(_ODD[number % len(_ODD)], widths.everywhere)
            other = context.prefill(tokens[start : start + width])
            start, number = start + width, number + 1
        return other.tobytes() == row and context.save().cells.tobytes() == cells
