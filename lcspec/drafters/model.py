"""A draft model: a smaller GGUF that guesses what the target will write."""

from collections.abc import Sequence

from lcspec.drafters.base import NO_DRAFT, Draft, Propose
from lcspec.llama import Context, common_prefix_length
from lcspec.sampling import Distribution


class ModelDrafter:
    """Proposes how a smaller model with the target's vocabulary goes on.

    The draft model's KV cache follows the committed tokens lazily: at each proposal what was
    rejected is truncated and what is new is evaluated. So a prompt is only prefilled when a
    draft is wanted, and the last token of an accepted draft, which the draft model has proposed but
    not evaluated, needs no special care. (Leviathan et al. 2023, "Fast Inference from Transformers
    via Speculative Decoding"; Chen et al. 2023.)

    Args:
        context: a context of the draft model, closed together with the drafter.
        n_vocab: size of the target's vocabulary; padding ids beyond it are never proposed.
        length: most tokens of a draft.
    """

    name = "model"

    def __init__(self, context: Context, n_vocab: int, length: int) -> None:
        self._context = context
        self._n_vocab = n_vocab
        self._length = length
        self._committed: list[int] = []
        self._propose: Propose
        self._understands = True
        self._agreed = 0  # leading tokens of the cache that are known to be the committed ones

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Follow `prompt` from now on; nothing is evaluated yet."""
        self._propose = propose
        self._committed = list(prompt)
        self._understands = self._knows(prompt)
        self._agreed = common_prefix_length(self._context.tokens, self._committed)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to what the cache has to follow."""
        self._committed += tokens
        self._understands = self._understands and self._knows(tokens)
        self._agreed = common_prefix_length(self._context.tokens, self._committed, self._agreed)

    def propose(self, limit: int) -> Draft:
        """Return up to `limit` tokens, one evaluation of the draft model each; none behind the end of a generation."""
        length = min(limit, self._length)
        if length <= 0 or not self._understands:
            return NO_DRAFT
        keep = min(self._agreed, len(self._committed) - 1)
        self._context.truncate(keep)
        logits = self._context.prefill(self._committed[keep:])
        self._agreed = len(self._committed)
        history = list(self._committed)
        distributions: list[Distribution | None] = []
        while True:
            token, drawn_from = self._propose(logits[: self._n_vocab], history)
            history.append(token)
            distributions.append(drawn_from)
            if len(distributions) == length or self._context.model.is_eog(token):
                break
            logits = self._context.prefill([token])
        return Draft(tuple(history[len(self._committed) :]), self.name, tuple(distributions))

    def _knows(self, tokens: Sequence[int]) -> bool:
        """Tell whether the draft model has these tokens; the target's padding may go on longer."""
        return max(tokens, default=0) < self._context.model.n_vocab

    def close(self) -> None:
        """Close the context and its model."""
        self._context.model.close()
