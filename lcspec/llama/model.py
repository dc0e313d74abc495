"""A GGUF file: its weights, vocabulary and metadata."""

import ctypes
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol

import llama_cpp
import numpy as np

from lcspec.errors import ClosedError, ModelError, PromptError
from lcspec.llama import log
from lcspec.llama.cut_vocabulary import CutVocabulary
from lcspec.llama.gguf_header import Header, read_header
from lcspec.llama.interrupts import deferred_interrupt
from lcspec.llama.weight_layouts import weight_layouts

_UNUSED = 1 << 1  # LLAMA_TOKEN_ATTR_UNUSED
_SPECIAL = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5  # ..._UNKNOWN, _CONTROL, _USER_DEFINED and _BYTE


class Model:
    """A loaded GGUF model. Usable as a context manager; closing it closes its contexts.

    Args:
        file: the GGUF file, any of them where it is split, or its header where that was read before.
        repack: let llama.cpp lay weights out anew for this processor's matrix kernels
            (`use_extra_bufts`): faster decoding of some quantizations, slower prefill of others.
        vocabulary_only: load no weights; such a model takes no context.

    Raises:
        ModelError: the file is missing, is no GGUF, is damaged, or is not a causal language model.
    """

    def __init__(self, file: str | Path | Header, *, repack: bool = True, vocabulary_only: bool = False) -> None:
        self._handle: Any = None
        self._contexts: set[_Closable] = set()
        self.header = file if isinstance(file, Header) else read_header(Path(file))
        """What the file says of itself."""
        self.path = self.header.files[0]
        self.cut = CutVocabulary.of(self.header)
        """What the model's tokens are in a whole vocabulary; None unless its own is cut."""
        if self.cut is not None and not vocabulary_only:
            self.cut.check()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = repack and bool(weight_layouts())
        params.vocab_only = vocabulary_only
        log.forget_errors()
        with deferred_interrupt():
            self._handle = llama_cpp.llama_model_load_from_file(os.fsencode(self.path), params)
        self.is_repacked = log.said_repacked()
        """Whether llama.cpp laid weights out anew; for some types, and on some processors, there is nothing to gain."""
        if not self._handle:
            raise ModelError(f"{self.path} can't be loaded: {log.first_error()}")
        if llama_cpp.llama_model_has_encoder(self._handle) or not llama_cpp.llama_model_has_decoder(self._handle):
            architecture = self.architecture
            self.close()
            raise ModelError(f"{self.path} is a {architecture} model, not a causal language model")
        self._vocab = llama_cpp.llama_model_get_vocab(self._handle)
        self._pieces: dict[int, bytes] = {}
        self._is_eog: dict[int, bool] = {}

    @property
    def handle(self) -> Any:
        """The llama_model pointer, for this package only."""
        if self._handle is None:
            raise ClosedError(f"the model {self.path.name} is closed")
        return self._handle

    @property
    def vocab(self) -> Any:
        """The llama_vocab pointer, for this package only."""
        self.handle  # noqa: B018  raises when closed
        return self._vocab

    # what the file is

    @cached_property
    def metadata(self) -> dict[str, str]:
        """All keys of the file as llama.cpp prints them (long arrays are abridged)."""
        handle = self.handle
        return {
            _text(llama_cpp.llama_model_meta_key_by_index, handle, i): _text(
                llama_cpp.llama_model_meta_val_str_by_index, handle, i
            )
            for i in range(llama_cpp.llama_model_meta_count(handle))
        }

    @property
    def architecture(self) -> str:
        """For example 'llama' or 'qwen2'."""
        return self.metadata.get("general.architecture", "unknown")

    @property
    def pre_tokenizer(self) -> str:
        """How a text is cut into words before it is tokenized, for example 'qwen2'; 'default' where none is named."""
        return str(self.header.metadata.get("tokenizer.ggml.pre", "default"))

    @property
    def description(self) -> str:
        """Architecture, size class and quantization in words, for example 'qwen2 1.5B Q4_K - Medium'."""
        return _text(llama_cpp.llama_model_desc, self.handle)

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(llama_cpp.llama_model_size(self.handle))

    @property
    def n_params(self) -> int:
        """Number of parameters."""
        return int(llama_cpp.llama_model_n_params(self.handle))

    @property
    def n_ctx_train(self) -> int:
        """Tokens of context that the model was trained for."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    @cached_property
    def n_embd(self) -> int:
        """Length of a hidden state, and of a token's embedding."""
        return int(llama_cpp.llama_model_n_embd(self.handle))

    @property
    def chat_template(self) -> str | None:
        """The Jinja source of the chat template, None when the file has none."""
        template = llama_cpp.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    # vocabulary

    @cached_property
    def n_vocab(self) -> int:
        """Number of token ids, padding included; the length of a logits row."""
        return int(llama_cpp.llama_vocab_n_tokens(self.vocab))

    @cached_property
    def digits(self) -> tuple[int, ...]:
        """The tokens of 0 to 9; empty where digits have no tokens of their own."""
        tokens = self.tokenize("0123456789", add_special=False, parse_special=False)
        by_piece = {self.piece(token): token for token in tokens}
        pieces = [b"%d" % i for i in range(10)]
        return tuple(by_piece[piece] for piece in pieces) if by_piece.keys() >= set(pieces) else ()

    @property
    def vocab_type(self) -> int:
        """llama.cpp's llama_vocab_type: 1 SPM, 2 BPE, 3 WPM, 4 UGM, ..."""
        return int(llama_cpp.llama_vocab_type(self.vocab))

    @property
    def bos(self) -> int | None:
        """The beginning-of-text token."""
        return _token_or_none(llama_cpp.llama_vocab_bos(self.vocab))

    @property
    def eos(self) -> int | None:
        """The end-of-text token."""
        return _token_or_none(llama_cpp.llama_vocab_eos(self.vocab))

    @property
    def eot(self) -> int | None:
        """The end-of-turn token."""
        return _token_or_none(llama_cpp.llama_vocab_eot(self.vocab))

    @property
    def infill(self) -> tuple[int, int, int] | None:
        """The tokens before a text's beginning, before its end, and before what is to be filled in between."""
        marks = llama_cpp.llama_vocab_fim_pre, llama_cpp.llama_vocab_fim_suf, llama_cpp.llama_vocab_fim_mid
        prefix, suffix, middle = (int(mark(self.vocab)) for mark in marks)
        return (prefix, suffix, middle) if min(prefix, suffix, middle) >= 0 else None

    @property
    def adds_bos(self) -> bool:
        """Whether the model wants a text to begin with `bos`."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self.vocab))

    def is_eog(self, token: int) -> bool:
        """Tell whether `token` ends a generation (end of text, of turn, and the like)."""
        known = self._is_eog.get(token)
        if known is None:
            known = self._is_eog[token] = bool(llama_cpp.llama_vocab_is_eog(self.vocab, token))
        return known

    def token_text(self, token: int) -> str:
        """Return the token as the vocabulary writes it, special tokens included."""
        return bytes(llama_cpp.llama_vocab_get_text(self.vocab, self.check_token(token))).decode("utf-8", "replace")

    def is_special(self, token: int) -> bool:
        """Tell whether `token` is not just a piece of text: a mark that ends a turn, a byte, and the like."""
        return bool(llama_cpp.llama_vocab_get_attr(self.vocab, self.check_token(token)) & _SPECIAL)

    def is_padding(self, token: int) -> bool:
        """Tell whether `token` only fills the vocabulary up to a round size."""
        unused = llama_cpp.llama_vocab_get_attr(self.vocab, self.check_token(token)) & _UNUSED
        return bool(unused) or self.token_text(token).startswith("[PAD")

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the token ids of `text`.

        Args:
            text: any text; lone surrogates become question marks.
            add_special: begin (and end) with the tokens that the model wants there, such as `bos`.
            parse_special: read special tokens written in the text, such as '<|im_end|>', as those tokens.
        """
        encoded = text.encode("utf-8", "replace")
        room = len(encoded) + 8
        while True:
            tokens = np.empty(room, dtype=np.int32)
            pointer = tokens.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token))
            n = llama_cpp.llama_tokenize(self.vocab, encoded, len(encoded), pointer, room, add_special, parse_special)
            if n >= 0:
                return [int(token) for token in tokens[:n]]
            if -n <= room:
                raise PromptError(f"a text of {len(encoded)} bytes is too long to tokenize")
            room = -n

    def piece(self, token: int) -> bytes:
        """Return the bytes that `token` stands for in a text; b"" for control tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._read_piece(self.check_token(token))
        return piece

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of a text that consists of `tokens`; they need not be whole characters."""
        return b"".join(map(self.piece, tokens))

    def _read_piece(self, token: int) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, size, 0, False)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def check_token(self, token: int) -> int:
        """Return `token`, or raise PromptError when the vocabulary has no such id."""
        if not 0 <= token < self.n_vocab:
            raise PromptError(f"{token} is not a token of {self.path.name}, whose ids end at {self.n_vocab - 1}")
        return token

    # life

    def attach(self, context: "_Closable") -> None:
        """Register a context, to be freed before the model is."""
        self._contexts.add(context)

    def detach(self, context: "_Closable") -> None:
        """Forget a context that has been freed."""
        self._contexts.discard(context)

    def close(self) -> None:
        """Free the weights and all contexts; closing again does nothing."""
        while self._contexts:
            self._contexts.pop().close()
        handle, self._handle = self._handle, None
        if handle is not None:
            llama_cpp.llama_model_free(handle)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model can't be copied or pickled; load its file again")

    def __enter__(self) -> "Model":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


class _Closable(Protocol):
    def close(self) -> None: ...


def _text(read: Any, *arguments: Any) -> str:
    """Call one of llama.cpp's readers that fill a buffer and return the length needed."""
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = read(*arguments, buffer, size)
        if n < size:
            return buffer.raw[: max(n, 0)].decode("utf-8", "replace")
        size = n + 1


def _token_or_none(token: int) -> int | None:
    return token if token >= 0 else None
