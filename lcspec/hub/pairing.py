"""Whether a draft model speaks its target's vocabulary, and which models do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lcspec.errors import ModelError, PairError
from lcspec.gguf_edit import target_digest
from lcspec.hub.cache import cached_path, local_models
from lcspec.hub.catalog import Entry, RecommendedDraft, catalog
from lcspec.hub.drafts import derived_drafts
from lcspec.llama import CutVocabulary, Model


@dataclass(frozen=True)
class Candidate:
    """A model that could draft for a target."""

    name: str
    size: int | None
    """Bytes, where they are known."""
    is_here: bool
    """Whether it is on this machine, and so was compared with the target."""
    problem: str | None = None
    """Why it can't draft."""
    figures: RecommendedDraft | None = None
    """What the catalog says of the pair."""


def check_pair(target: Model, draft: Model) -> None:
    """Make sure that a token id means the same to both models.

    The longer vocabulary may go on with padding, as within the Qwen family.

    Raises:
        PairError: says what differs.
    """
    difference = _difference(target, draft)
    if difference is not None:
        raise PairError(f"{draft.path.name} can't draft for {target.path.name}: {difference}")


def pre_tokenizer_difference(target: Model, draft: Model) -> str | None:
    """Say how the pre-tokenizers differ, if they do: token ids mean the same, but the draft may guess worse."""
    ours, theirs = target.pre_tokenizer, draft.pre_tokenizer
    return None if ours == theirs else f"the draft's pre-tokenizer is {theirs!r}, the target's {ours!r}"


def draft_candidates(target: Model, entry: Entry | None) -> list[Candidate]:
    """Return the models here that are smaller than the target, drafts that were made here, and what the catalog has.

    Those that fit come first, and of these the ones that the catalog recommends.

    Args:
        target: the target; its vocabulary is enough.
        entry: its catalog entry, if it has one.
    """
    recommended = {draft.model: draft for draft in entry.drafts} if entry else {}
    found = [*_here(target, recommended), *_derived(target), *_in_catalog(target, recommended)]
    return sorted(found, key=lambda one: (one.problem is not None, one.name not in recommended, one.size or 0))


def _here(target: Model, recommended: dict[str, RecommendedDraft]) -> Iterator[Candidate]:
    for model in local_models():
        if not model.is_complete or model.size >= target.header.file_size or model.files[0].samefile(target.path):
            continue
        yield Candidate(model.name, model.size, True, _problem(target, model.files[0]), recommended.get(model.name))


def _derived(target: Model) -> Iterator[Candidate]:
    """Yield the drafts that were made of the target, and those made of others that fit it; heads never do."""
    digest = target_digest(target.header)
    for draft in derived_drafts():
        mine = draft.provenance.target == digest
        if mine or (not draft.is_head and _problem(target, draft.path) is None):
            yield Candidate(draft.name, draft.path.stat().st_size, True)


def _problem(target: Model, path: Path) -> str | None:
    try:
        with Model(path, vocabulary_only=True) as draft:
            return _difference(target, draft)
    except ModelError as error:
        return str(error)


def _in_catalog(target: Model, recommended: dict[str, RecommendedDraft]) -> Iterator[Candidate]:
    for entry in catalog().values():
        alike = (entry.architecture, entry.pre_tokenizer) == (target.architecture, target.pre_tokenizer)
        smaller = entry.size is None or entry.size < target.header.file_size
        if (entry.name in recommended or (alike and smaller)) and cached_path(entry) is None:
            yield Candidate(entry.name, entry.size, False, figures=recommended.get(entry.name))


def _difference(target: Model, draft: Model) -> str | None:
    if target.cut is not None:
        return "the target's vocabulary is cut, and so it can only draft"
    if target.vocab_type != draft.vocab_type:
        return f"their vocabularies are of different kinds (llama.cpp's {draft.vocab_type} and {target.vocab_type})"
    if draft.cut is not None:
        return _cut_difference(target, draft, draft.cut)
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
    return _special_difference(target, draft, lambda token: token)


def _cut_difference(target: Model, draft: Model, cut: CutVocabulary) -> str | None:
    """Compare the tokens that a draft model with a cut vocabulary can propose."""
    for own, token in enumerate(cut.ids.tolist()):
        if token >= target.n_vocab:
            return f"it has a token {token}, and the target ends at {target.n_vocab - 1}"
        ours, theirs = target.token_text(token), draft.token_text(own)
        if ours != theirs and not (target.is_padding(token) and draft.is_padding(own)):
            return f"token {token} is {theirs!r}, the target's is {ours!r}"
    return _special_difference(target, draft, lambda token: int(cut.ids[token]))


def _names_eot(model: Model) -> bool:
    return "tokenizer.ggml.eot_token_id" in model.header.metadata


def _special_difference(target: Model, draft: Model, of_target: Callable[[int], int]) -> str | None:
    for name in ("bos", "eos", "eot"):
        if name == "eot" and not (_names_eot(target) and _names_eot(draft)):
            continue  # llama.cpp guesses: of several tokens that could be it, the one that it comes upon first
        ours, theirs = getattr(target, name), getattr(draft, name)
        theirs = theirs if theirs is None else of_target(theirs)
        if ours != theirs:
            return f"{name} is {theirs}, the target's is {ours}"
    if target.adds_bos != draft.adds_bos:
        return f"adds_bos is {draft.adds_bos}, the target's is {target.adds_bos}"
    return None
