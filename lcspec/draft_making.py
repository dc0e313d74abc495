"""Drafts made from the target itself: fewer of its blocks, fewer bits, fewer tokens."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from lcspec.errors import FileError, ModelError
from lcspec.gguf_edit import Gguf, Provenance, check_layers, keep_layers, read_gguf, values, write_gguf
from lcspec.hub import MODEL, DerivedDraft, publish
from lcspec.llama import Context, Header, Model, quantize, read_header

Edit = Callable[[Gguf], Gguf]

_WHOLE, _QUANTIZED, _EDITED = "whole.gguf", "quantized.gguf", "edited.gguf"
_OF_RECIPE = 4  # hexadecimal digits of the recipe in a name
_SHORT = 8  # tokens of context, to try it
_SPARE = 1 << 20  # bytes more than the weights, for the metadata


def check_drafting(target: Header, threads: int) -> None:
    """Make sure that drafts are of any use to a model.

    Raises:
        ModelError: they aren't, as its cache can't be truncated.
    """
    with Model(target, repack=False) as model, Context(model, _SHORT, threads=threads) as context:
        if not context.can_truncate:
            raise ModelError(f"nothing can be drafted for a {model.architecture} model, whose cache can't be truncated")


def name_of_target(target: str) -> str:
    """Return what drafts of a target are called by: its name or its file's, without what a file's name can't have."""
    name = Path(target).name.removesuffix(".gguf") if "/" in target else target
    return re.sub(r"[^A-Za-z0-9.+-]", "-", name).strip("-.+") or "model"


def draft_name(target: str, provenance: Provenance, n_layers: int) -> str:
    """Return what a draft is called that was given no name."""
    parts = [name_of_target(target)]
    if provenance.layers:
        parts += [f"{len(provenance.layers)}of{n_layers}"]
    if provenance.vocabulary:
        parts += [f"v{provenance.vocabulary}"]
    if provenance.quant:
        parts += [provenance.quant.lower()]
    if provenance.layers or provenance.vocabulary:
        parts += [provenance.recipe[:_OF_RECIPE]]
    return "-".join(parts)


def make_draft(
    target: Header,
    provenance: Provenance,
    name: str,
    *,
    threads: int,
    edits: Sequence[Edit] = (),
    force: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> DerivedDraft:
    """Write a draft into the folder of derived drafts.

    Args:
        target: the model that it is made from.
        provenance: what is to be done with it.
        name: what the draft is called.
        threads: threads to quantize with.
        edits: what is done last.
        force: replace another draft of that name.
        say: told what happens.

    Raises:
        ModelError: this model can't be changed so.
        FileError: the draft can't be written, or there is another one of that name.
    """
    gguf = read_gguf(target)
    if provenance.layers:
        check_layers(gguf, provenance.layers)

    def write(folder: Path) -> Path:
        say(f"writing {name}")
        kept = keep_layers(gguf, provenance.layers) if provenance.layers else gguf
        kept = kept.with_metadata({"general.name": values.text(name), **provenance.as_metadata()})
        made = folder / _WHOLE
        if not provenance.quant:
            _write(made, _edited(kept, edits))
        else:
            _write(made, kept)
            say(f"quantizing to {provenance.quant}")
            made = _replaced(made, folder / _QUANTIZED, lambda old, new: quantize(old, new, provenance.quant, threads))
            if edits:  # what llama.cpp does not know would not outlive its quantizer
                made = _replaced(made, folder / _EDITED, lambda old, new: _write(new, _edited(_read(old), edits)))
        with Model(read_header(made), repack=False):  # llama.cpp takes it
            return made

    return publish(name, MODEL, provenance, write, force=force)


def _edited(gguf: Gguf, edits: Sequence[Edit]) -> Gguf:
    for edit in edits:
        gguf = edit(gguf)
    return gguf


def _read(path: Path) -> Gguf:
    return read_gguf(read_header(path))


def _replaced(old: Path, new: Path, write: Callable[[Path, Path], None]) -> Path:
    write(old, new)
    old.unlink()
    return new


def _write(path: Path, gguf: Gguf) -> None:
    need = sum(tensor.data.nbytes for tensor in gguf.tensors.values()) + len(gguf.tail) + _SPARE
    free = shutil.disk_usage(path.parent).free
    if need > free:
        raise FileError(
            f"a draft of {need / 1e6:,.0f} MB can't be written: {free / 1e6:,.0f} MB are free on the disk of "
            f"{path.parent.parent}"
        )
    with path.open("wb") as file:
        write_gguf(file, gguf)
