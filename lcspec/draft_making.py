"""Drafts made from the target itself: fewer of its blocks, fewer bits, fewer tokens."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from lcspec.errors import FileError
from lcspec.gguf_edit import Gguf, Provenance, check_layers, keep_layers, read_gguf, values, write_gguf
from lcspec.hub import MODEL, DerivedDraft, publish
from lcspec.llama import Header, Model, quantize, read_header

Edit = Callable[[Gguf], Gguf]

_WHOLE, _QUANTIZED = "whole.gguf", "quantized.gguf"
_OF_RECIPE = 4  # hexadecimal digits of the recipe in a name
_SPARE = 1 << 20  # bytes more than the weights, for the metadata


def draft_name(target: str, provenance: Provenance, n_layers: int) -> str:
    """Return what a draft is called that was given no name."""
    parts = [re.sub(r"[^A-Za-z0-9.+-]", "-", target).strip("-.+") or "model"]
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
        edits: what is done behind the cut to some blocks, and before quantizing.
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
        made = _write(folder / _WHOLE, _edited(gguf, provenance, name, edits))
        if provenance.quant:
            say(f"quantizing to {provenance.quant}")
            quantize(made, folder / _QUANTIZED, provenance.quant, threads)
            made.unlink()
            made = folder / _QUANTIZED
        with Model(read_header(made), repack=False):  # llama.cpp takes it
            return made

    return publish(name, MODEL, provenance, write, force=force)


def _edited(gguf: Gguf, provenance: Provenance, name: str, edits: Sequence[Edit]) -> Gguf:
    if provenance.layers:
        gguf = keep_layers(gguf, provenance.layers)
    for edit in edits:
        gguf = edit(gguf)
    return gguf.with_metadata({"general.name": values.text(name), **provenance.as_metadata()})


def _write(path: Path, gguf: Gguf) -> Path:
    need = sum(tensor.data.nbytes for tensor in gguf.tensors.values()) + _SPARE
    free = shutil.disk_usage(path.parent).free
    if need > free:
        raise FileError(
            f"a draft of {need / 1e6:,.0f} MB can't be written: {free / 1e6:,.0f} MB are free on the disk of "
            f"{path.parent.parent}"
        )
    with path.open("wb") as file:
        write_gguf(file, gguf)
    return path
