"""What a derived draft was made of, and how: kept in the file's own metadata."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from lcspec.errors import ModelError
from lcspec.gguf_edit import values
from lcspec.kept_state import weights_digest
from lcspec.llama import Header

_PREFIX = "lcspec.draft."
_VERSION = 1


@dataclass(frozen=True)
class Provenance:
    """Where a derived draft is from.

    Attributes:
        target: digest of the target, see `target_digest`.
        target_name: what the target was called.
        layers: the target's blocks that were kept, by their numbers there; empty for all.
        quant: the type to which the weights were quantized; empty for none.
        vocabulary: tokens that the output matrix was cut to; 0 for all.
        seed: of the search for the blocks.
        text: SHA-256 of the texts that the blocks or the tokens were searched by; empty without.
        agreement: the share of the target's own greedy tokens that were the draft's, too, behind a shared prompt;
            None where that was not measured.
        options: further options, as JSON types.
    """

    target: str
    target_name: str
    layers: tuple[int, ...] = ()
    quant: str = ""
    vocabulary: int = 0
    seed: int = 0
    text: str = ""
    agreement: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> str:
        """What was done: 'layers', 'vocab' and 'quant', joined by '+'; 'head' for a draft head."""
        if "head" in self.options:
            return "head"
        done = {"layers": self.layers, "vocab": self.vocabulary, "quant": self.quant}
        return "+".join(name for name, value in done.items() if value) or "copy"

    @property
    def recipe(self) -> str:
        """A digest of what decides the file's contents: two files of one recipe are the same."""
        deciding = [self.target, self.layers, self.quant, self.vocabulary, self.text if self.vocabulary else ""]
        return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()

    def as_texts(self) -> dict[str, str]:
        """Return all of it as texts by key, for formats that know no others."""
        facts = {"kind": self.kind, "version": _VERSION, **asdict(self)}
        facts["options"] = json.dumps(dict(self.options), sort_keys=True)
        return {_PREFIX + name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in facts.items()}

    def as_metadata(self) -> dict[str, bytes]:
        """Return all of it as metadata values of a GGUF file by key."""
        found = {
            "kind": values.text(self.kind),
            "version": values.uint32(_VERSION),
            "target": values.text(self.target),
            "target_name": values.text(self.target_name),
            "layers": values.int32s(self.layers),
            "quant": values.text(self.quant),
            "vocabulary": values.uint32(self.vocabulary),
            "seed": values.uint64(self.seed),
            "text": values.text(self.text),
            "options": values.text(json.dumps(dict(self.options), sort_keys=True)),
        }
        if self.agreement is not None:
            found["agreement"] = values.float32(self.agreement)
        return {_PREFIX + name: value for name, value in found.items()}

    @classmethod
    def of(cls, header: Header) -> "Provenance | None":
        """Return what a GGUF file says of itself; None where it is no derived draft, or one that is not understood."""
        with suppress(KeyError, TypeError, ValueError, RecursionError):
            return cls._from(header.metadata)
        return None

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> "Provenance | None":
        """Return what was told by `as_texts`; None where it is something else."""
        with suppress(KeyError, TypeError, ValueError, RecursionError):
            plain = ("kind", "target", "target_name", "quant", "text", "options")
            return cls._from(
                {
                    key: text if key.removeprefix(_PREFIX) in plain else json.loads(text)
                    for key, text in texts.items()
                    if key.startswith(_PREFIX)
                }
            )
        return None

    @classmethod
    def _from(cls, found: Mapping[str, Any]) -> "Provenance":
        def take(name: str, kind: type) -> Any:
            value = found[_PREFIX + name]
            if not isinstance(value, kind):
                raise TypeError(name)
            return value

        if take("version", int) != _VERSION:
            raise ValueError(_VERSION)
        agreement = found.get(f"{_PREFIX}agreement")
        return cls(
            target=take("target", str),
            target_name=take("target_name", str),
            layers=tuple(map(int, take("layers", list))),
            quant=take("quant", str),
            vocabulary=take("vocabulary", int),
            seed=take("seed", int),
            text=take("text", str),
            agreement=None if agreement is None else float(agreement),
            options=dict(json.loads(take("options", str))),
        )


def target_digest(header: Header) -> str:
    """Return what names a target: a digest of its header and of samples all over its weights.

    Raises:
        ModelError: a file can't be read.
    """
    try:
        weights = weights_digest(tuple(header.files))
    except OSError as error:
        raise ModelError(f"{header.files[0]} can't be read: {error.strerror}") from error
    return hashlib.sha256(f"{header.digest} {weights}".encode()).hexdigest()
