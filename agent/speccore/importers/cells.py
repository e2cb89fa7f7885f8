"""Cells of other people's tables: figures with ranges, dashes and footnotes, and devices that share a cell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .shapes import unlikely

MISSING = {"", "-", "–", "—", "−", "n/a", "na", "n.a.", "none", "null", "nil", "?", "??", "tbd", "..", "…", "not tested", "untested"}
#: Units as people write them behind a figure.
WORDS = {
    **dict.fromkeys(("t/s", "tok/s", "toks/s", "token/s", "tokens/s", "tps", "tokens/sec", "tok/sec", "t/sec"), "tokens/s"),
    **dict.fromkeys(("req/s", "requests/s", "rps"), "requests/s"),
    **dict.fromkeys(("%", "percent", "pct"), "%"),
    **dict.fromkeys(("x", "×", "times", "fold"), "×"),
    **dict.fromkeys(("ms", "msec"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), "s"),
    **dict.fromkeys(("tokens", "tok", "token"), "tokens"),
    **dict.fromkeys(("mib",), "MiB"),
    **dict.fromkeys(("w", "watt", "watts"), "W"),
}
UNITS = ("tokens/s", "requests/s", "ms", "s", "tokens", "requests", "%", "share", "×", "MiB", "W", "")
#: No figure with its unit is longer, and no cell has more footnotes.
MOST_LETTERS, MOST_NOTES = 100, 8
_FOOTNOTE = re.compile(r"(?:\s*(\*{1,3}|[†‡§¶#]|\[\w{1,3}\]|\^\w{1,2}|[¹²³⁴-⁹]+|\([^()]{1,60}\)))$")
_ABOUT = re.compile(r"^(?:~|≈|ca\.?|about|approx\.?|roughly)\s*", re.IGNORECASE)
_SPREAD = re.compile(r"\s*(?:±|\+/-|\+-)\s*(\S.*)$")
_FIGURE = r"[+-]?(?:\d[\d.,  ’']*|\.\d+)(?:[eE][+-]?\d{1,4})?"
_RANGE = re.compile(rf"^({_FIGURE})\s*([^\d\s.,–—-]*)\s*(?:-|–|—|−|\.\.+|…|to|bis)\s*({_FIGURE})\s*(.*)$")
_ONE = re.compile(rf"^({_FIGURE})\s*(.*)$")
_TIMES = re.compile(r"^(?:(\d{1,2})\s*[x×*]\s+|(\d{1,2})[x×])\s*(?=\S)|\s*[x×]\s?(\d{1,2})$", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:\s\+\s|\s&\s|\s/\s|;|\n|\band\b|\bund\b)\s*|\s*\+\s*(?=[A-Za-z0-9])")


class CellWrong(ValueError):
    """What a cell says can't be taken; with what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


@dataclass(frozen=True)
class Figure:
    """``value``, or a range that stays one; ``note`` has what stood around it: footnotes, a spread, "about"."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def figure(text: str, unit: str, decimal: str = ".") -> Figure | None:
    """What a cell says in ``unit``; None where it says that nothing is known. Raises :class:`CellWrong`."""
    left, notes = " ".join(text.split()), list[str]()  # runs of spaces would cost the patterns their cube
    while len(notes) < MOST_NOTES and (found := _FOOTNOTE.search(left)):
        notes.insert(0, found[1])
        left = left[: found.start()].rstrip()
    if left.lower() in MISSING:
        return None
    if about := _ABOUT.match(left):
        notes.insert(0, "about")
        left = left[about.end() :]
    if spread := _SPREAD.search(left):
        notes.append(f"± {spread[1]}")
        left = left[: spread.start()]
    if len(left) > MOST_LETTERS:
        raise CellWrong("is no number", "Leave the cell empty, or write - where nothing was measured.")
    note = ", ".join(notes)
    if (ends := _RANGE.match(left)) and not left.startswith("-"):
        _refuse_unit(ends[4] or ends[2], unit)
        low, high = _number(ends[1], unit, decimal), _number(ends[3], unit, decimal)
        if low > high:
            raise CellWrong("is a range that runs backwards", "Write the smaller end first.")
        return Figure(low=low, high=high, note=note)
    one = _ONE.match(left)
    if one is None:
        raise CellWrong("is no number", "Leave the cell empty, or write - where nothing was measured.")
    _refuse_unit(one[2], unit)
    return Figure(_number(one[1], unit, decimal), note=note)


def _refuse_unit(words: str, unit: str) -> None:
    said = words.strip().lower().rstrip(".")
    if not said:
        return
    given = WORDS.get(said)
    if given is None:
        raise CellWrong(f"has {words.strip()[:20]!r} behind the number", "Write the number alone, or a note in parentheses.")
    if given != unit:
        raise CellWrong(
            f"is in {given}, and its column is mapped as {unit or 'a plain number'}", "Nothing is converted: correct the column’s unit."
        )


def _number(text: str, unit: str, decimal: str) -> float:
    thousands = "," if decimal == "." else "."
    body = re.sub(r"[  ’'](?=\d{3}(?!\d))", "", text.strip())
    if thousands in body:
        mark, point = re.escape(thousands), re.escape(decimal)
        if not re.fullmatch(rf"[+-]?\d{{1,3}}(?:{mark}\d{{3}})+(?:{point}\d+)?", body):
            other = "a comma" if thousands == "," else "a point"
            raise CellWrong(f"has {other} that is no thousands separator", "Say with the table what its decimal sign is.")
        body = body.replace(thousands, "")
    try:
        value = float(body.replace(decimal, "."))
    except ValueError:
        raise CellWrong("is no number", "Leave the cell empty, or write - where nothing was measured.") from None
    if wrong := unlikely(value, unit):
        raise CellWrong(*wrong)
    return value


def devices(text: str) -> tuple[str, ...]:
    """The kinds of devices that a cell names, each once, without their number: "2x RTX 3090 + P40" has two."""
    found = []
    for part in _BETWEEN.split(text):
        name = _TIMES.sub("", part.strip()).strip(" ,")
        if name and name not in found:
            found.append(name)
    return tuple(found)
