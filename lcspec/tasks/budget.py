"""How long texts, pieces and summaries may be in a context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lcspec.engine import SpeculativeLM
from lcspec.errors import PromptError

TITLE_TOKENS = 32
_PIECE_WORDS = 80  # of the summary of a piece
_PIECE = 3000  # tokens: behind more of them one costs too much, and small models lose the thread
_EXTRA_TOKENS = 32  # beyond two for each word
_MARGIN = 8  # tokens by which a text may grow where it meets what is around it


@dataclass(frozen=True)
class Budget:
    """What there is room for, in tokens.

    Attributes:
        room: that a text may have to be summarized at once.
        summary: that its summary may have.
        piece: that a piece may have, where the text has more.
        piece_summary: that the summary of a piece may have.
        piece_words: words of that.
    """

    room: int
    summary: int
    piece: int
    piece_summary: int
    piece_words: int

    @classmethod
    def of(cls, engine: SpeculativeLM, words: int, asked: Sequence[Mapping[str, str]]) -> "Budget":
        """Return the budget of a summary of so many words, where `asked` is the message without a text.

        Raises:
            PromptError: the context is too small, or the model has no chat template.
        """
        summary = _tokens_of(words)
        around = len(engine.chat_prompt(asked)) + _MARGIN
        room = engine.n_ctx - around - max(summary, TITLE_TOKENS)
        piece_summary = min(_tokens_of(max(_PIECE_WORDS, words)), engine.n_ctx // 8, _PIECE // 4)
        piece = min(room, engine.n_ctx - around - piece_summary, _PIECE)
        if piece < 4 * piece_summary:  # or the summaries of halves of pieces might not become fewer
            raise PromptError(
                f"a summary of {words:,} words needs more than the {engine.n_ctx:,} tokens of the context: "
                "take more context (n_ctx, --ctx) or ask for fewer words"
            )
        return cls(room, summary, piece, piece_summary, max(8, (piece_summary - _EXTRA_TOKENS) // 2))


def _tokens_of(words: int) -> int:
    return 2 * words + _EXTRA_TOKENS
