"""A terminal's screen: what a program's output looks like, and what has scrolled away."""

import re
import unicodedata

_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[=>]|(.)", re.DOTALL)


class _Row(list[str]):
    """The cells of a row."""

    goes_on = False  # in the next row, as the terminal wrapped it


class Screen:
    """Understands what chat and prompt-toolkit write; anything else that controls a terminal is an error."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self._gone: list[_Row] = []
        self._rows = [_Row()]
        self._row = self._column = 0
        self._wraps = True
        self.n_clipped = 0

    @property
    def lines(self) -> list[str]:
        """All lines, those that have scrolled away too, without blanks at their ends and empty ones at the end."""
        lines = ["".join(row).rstrip() for row in [*self._gone, *self._rows]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def write(self, text: str) -> int:
        for found in _TOKEN.finditer(text):
            parameters, kind, character = found.groups()
            if kind is not None:
                self._control(parameters, kind)
            elif character is not None:
                self._print(character)
        return len(text)

    def flush(self) -> None:
        pass

    @property
    def copied(self) -> list[str]:
        """All lines as they are copied: those that the terminal wrapped are whole."""
        text = "".join("".join(row) if row.goes_on else "".join(row).rstrip() + "\n" for row in self._gone + self._rows)
        return text.rstrip("\n").split("\n")

    def size(self, _: object = None) -> tuple[int, int]:
        return self.columns, self.rows

    def resize(self, columns: int, n_rows: int) -> None:
        """Wrap lines anew, as most terminals do; the cursor is at the end of the last."""
        rows = [*self._gone, *self._rows[: self._row + 1]]
        self.columns, self.rows = columns, n_rows
        self._gone, self._rows, self._row, self._column = [], [_Row()], 0, 0
        for i, row in enumerate(rows):
            if i and not rows[i - 1].goes_on:
                self._print("\n")
            text = "".join(row)
            for character in text if row.goes_on else text.rstrip():
                self._print(character)

    def _print(self, character: str) -> None:
        if character == "\n":
            self._feed()
            self._column = 0  # the terminal driver's part
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column -= 1
        else:
            self._put(character)

    def _put(self, character: str) -> None:
        assert unicodedata.category(character) != "Cc", f"{character!r} controls"
        row = self._rows[self._row]
        if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
            if self._column:
                row[self._column - 1] += character
            return
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self._column + width > self.columns:
            if self._wraps:
                row.goes_on = True
                self._feed()
                self._column = 0
                row = self._rows[self._row]
            else:
                self.n_clipped += 1
                self._column = self.columns - width
        row += [" "] * (self._column + width - len(row))
        row[self._column : self._column + width] = [character, ""][:width]
        self._column += width

    def _feed(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append(_Row())
        if self._row == self.rows:
            self._gone.append(self._rows.pop(0))
            self._row -= 1

    def _control(self, parameters: str, kind: str) -> None:
        number = int(parameters) if parameters.isdecimal() else 0
        row = self._rows[self._row]
        if kind == "A":
            assert self._row >= max(number, 1), "above the screen"
            self._row -= max(number, 1)
        elif kind == "B":
            self._row = min(self._row + max(number, 1), len(self._rows) - 1)
        elif kind == "C":
            self._column += max(number, 1)
        elif kind == "D":
            self._column -= max(number, 1)
        elif kind == "K":
            row[:] = [] if number == 2 else row[: self._column]
            row.goes_on = False
        elif kind == "J":
            assert number == 0, "the screen is not erased"
            del row[self._column :]
            row.goes_on = False
            del self._rows[self._row + 1 :]
        elif (parameters, kind) in (("?7", "l"), ("?7", "h")):
            self._wraps = kind == "h"
        else:
            assert kind in "mhl", f"{parameters}{kind} is unknown"
