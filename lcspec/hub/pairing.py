"""Whether a draft model speaks its target's vocabulary."""

from lcspec.errors import PairError
from lcspec.llama import Model


def check_pair(target: Model, draft: Model) -> None:
    """Make sure that a token id means the same to both models.

    The longer vocabulary may go on with padding, as within the Qwen family.

    Raises:
        PairError: says what differs.
    """
    difference = _difference(target, draft)
    if difference is not None:
        raise PairError(f"{draft.path.name} can't draft for {target.path.name}: {difference}")


def _difference(target: Model, draft: Model) -> str | None:
    if target.vocab_type != draft.vocab_type:
        return f"their vocabularies are of different kinds (llama.cpp's {draft.vocab_type} and {target.vocab_type})"
    for name in ("bos", "eos", "eot", "adds_bos"):
        ours, theirs = getattr(target, name), getattr(draft, name)
        if ours != theirs:
            return f"{name} is {theirs}, the target's is {ours}"
    shared = min(target.n_vocab, draft.n_vocab)
    for token in range(shared):
        ours, theirs = target.token_text(token), draft.token_text(token)
        if ours != theirs and not (target.is_padding(token) and draft.is_padding(token)):
            return f"token {token} is {theirs!r}, the target's is {ours!r}"
    longer = max(target, draft, key=lambda model: model.n_vocab)
    for token in range(shared, longer.n_vocab):
        if not longer.is_padding(token):
            return (
                f"it has {draft.n_vocab:,} tokens, the target {target.n_vocab:,}, "
                f"and {longer.token_text(token)!r} among those that one lacks is no padding"
            )
    return None
