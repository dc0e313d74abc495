"""A draft model: a smaller GGUF that guesses what the target will write."""

from collections.abc import Sequence

from lcspec.drafters.base import NO_DRAFT, Draft
from lcspec.llama import Context, common_prefix_length


class ModelDrafter:
    """Proposes the greedy continuation of a smaller model with the target's vocabulary.

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
        self._agreed = 0  # leading tokens of the cache that are known to be the committed ones

    def begin(self, prompt: Sequence[int]) -> None:
        """Follow `prompt` from now on; nothing is evaluated yet."""
        self._committed = list(prompt)
        self._agreed = common_prefix_length(self._context.tokens, self._committed)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to what the cache has to follow."""
        self._committed += tokens
        self._agreed = common_prefix_length(self._context.tokens, self._committed, self._agreed)

    def propose(self, limit: int) -> Draft:
        """Return up to `limit` tokens, one evaluation of the draft model each, up to the end of a generation."""
        length = min(limit, self._length)
        if length <= 0:
            return NO_DRAFT
        keep = min(self._agreed, len(self._committed) - 1)
        self._context.truncate(keep)
        logits = self._context.prefill(self._committed[keep:])
        self._agreed = len(self._committed)
        draft: list[int] = []
        while True:
            token = int(logits[: self._n_vocab].argmax())
            if self._context.model.is_eog(token):
                break
            draft.append(token)
            if len(draft) == length:
                break
            logits = self._context.prefill([token])
        return Draft(tuple(draft), self.name)

    def close(self) -> None:
        """Close the context and its model."""
        self._context.model.close()
