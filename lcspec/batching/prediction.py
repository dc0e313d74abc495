"""How much of a predicted text came true."""

from collections.abc import Sequence

_REACH = 200  # tokens that the text may leave out
_PROOF = 3  # tokens that have to be the prediction's for the text to be there again


class Prediction:
    """Follows a text through a prediction, and counts the tokens that are the same, in the same order.

    Args:
        tokens: the prediction.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self.accepted = 0
        """Tokens of the prediction that the text has."""
        self._tokens = list(tokens)
        self._position = 0
        self._since: list[int] = []  # tokens since the text left the prediction

    @property
    def rejected(self) -> int:
        """Tokens of the prediction that the text does not have, or not yet."""
        return len(self._tokens) - self.accepted

    def follow(self, tokens: Sequence[int]) -> None:
        """Go on by some tokens of the text."""
        for token in tokens if self._tokens else ():
            if not self._since and self._position < len(self._tokens) and self._tokens[self._position] == token:
                self._position += 1
                self.accepted += 1
            else:
                self._since.append(token)
                self._find_again()

    def _find_again(self) -> None:
        proof = self._since[-_PROOF:]
        if len(proof) < _PROOF:
            return
        for start in range(self._position, min(self._position + _REACH, len(self._tokens) - _PROOF + 1)):
            if self._tokens[start : start + _PROOF] == proof:
                self._position = start + _PROOF
                self.accepted += _PROOF
                self._since.clear()
                return
