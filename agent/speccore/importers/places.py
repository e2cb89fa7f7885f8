"""JSON from outside, read within bounds, where each value knows its line: a fault names the place, not only the reason."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from .shapes import MAX_NUMBERS, MAX_RUNS, MOST_TOLD, ImportFault, unlikely

MAX_BYTES = 16 * 1024**2
MAX_DEPTH = 40
MOST_DIGITS = 400
MOST_FAULTS, MOST_NAMES = 200, 300
#: A string that doesn't end goes to the end of the text, so that no text costs more than its length.
_STRING = r'"(?:[^"\\]|\\.)*"?'
_TOKEN = re.compile(_STRING + r'|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_NESTING = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_ABSENT = object()

Path = tuple[str | int, ...]


class Refused(Exception):
    """The file can't be read at all."""

    def __init__(self, fault: ImportFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class Document:
    """A JSON text, or one of several that stand in a file line by line. ``faults`` grows while it is read; lines are found at its end."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self.text, self.first_line = text, first_line
        self.faults: list[tuple[Path, ImportFault]] = []
        self.root = Place(self, (), self._parsed())

    def _parsed(self) -> Any:
        try:
            return json.loads(self.text, object_pairs_hook=_once, parse_int=_whole, parse_constant=_constant)
        except RecursionError:
            raise Refused(ImportFault("is nested too deeply", "Send the result file that the tool writes, unchanged.")) from None
        except json.JSONDecodeError as error:
            words = f"is no JSON: {error.msg.lower()} (column {error.colno})"
            ends = error.pos >= len(self.text.rstrip()) or "Unterminated" in error.msg
            remedy = "The file ends too early: send the whole of it." if ends else "Send the result file that the tool writes, unchanged."
            raise Refused(ImportFault(words, remedy, line=self.first_line + error.lineno - 1)) from None
        except _Wrong as wrong:
            raise Refused(self._placed(wrong)) from None

    def _placed(self, wrong: _Wrong) -> ImportFault:
        """The fault with the line that the parser's hooks aren't told."""
        seen: set[Path] = set()
        for path, token, offset in walk(self.text):
            twice = wrong.is_key and token == "" and path in seen and path[-1] == wrong.value
            if twice or (not wrong.is_key and token == wrong.value):
                return ImportFault(wrong.reason, wrong.remedy, dotted(path), wrong.value[:60], self.line_at(offset))
            if token == "":
                seen.add(path)
        return ImportFault(wrong.reason, wrong.remedy, value=wrong.value[:60])

    def line_at(self, offset: int) -> int:
        return self.first_line + self.text.count("\n", 0, offset)

    def told(self) -> list[ImportFault]:
        """The first faults with their lines: of a value that is missing, its parent's."""
        due = self.faults[:MOST_TOLD]
        if not due or "\n" not in self.text:
            return [replace(fault, line=self.first_line) for _, fault in due]
        nearest = dict.fromkeys(path[:n] for path, _ in due for n in range(len(path) + 1))
        offsets = {path: offset for path, _, offset in walk(self.text) if path in nearest}
        lines = []
        for path, fault in due:
            there = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in offsets), ())
            lines.append(replace(fault, line=self.line_at(offsets.get(there, 0))))
        return lines


class Place:
    """A value and where it stands."""

    __slots__ = ("doc", "path", "value")

    def __init__(self, doc: Document, path: Path, value: Any) -> None:
        self.doc, self.path, self.value = doc, path, value

    def __bool__(self) -> bool:
        return self.value is not _ABSENT and self.value is not None

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def fault(self, reason: str, remedy: str, shown: object = "") -> None:
        found = (self.path, ImportFault(reason, remedy, dotted(self.path), plain(str(shown), 60)))
        if len(self.doc.faults) < MOST_FAULTS and found not in self.doc.faults:
            self.doc.faults.append(found)

    def at(self, key: str) -> Place:
        inner = self.value.get(key, _ABSENT) if isinstance(self.value, dict) else _ABSENT
        return Place(self.doc, (*self.path, key), inner)

    def need(self, key: str) -> Place:
        found = self.at(key)
        if found.value is _ABSENT:
            near = _near(key, self.value) if len(self.doc.faults) < MOST_FAULTS else ""
            found.fault("is missing", f"Send the file as the tool wrote it{near}.")
        return found

    def items(self) -> list[Place]:
        """The values of an array; of anything else none, told as a fault unless it is absent or null."""
        if not self:
            return []
        if not isinstance(self.value, list):
            self.fault("is no array", "Send the file as the tool wrote it.", _shown(self.value))
            return []
        return [Place(self.doc, (*self.path, i), v) for i, v in enumerate(self.value)]

    def objects(self) -> list[Place]:
        found = self.items()
        if len(found) > MAX_NUMBERS:
            self.fault(f"holds {len(found):,} objects; at most {MAX_NUMBERS:,} are read", "Split it into several files.")
            return []
        for place in found:
            if not place.is_object:
                place.fault("is no object", "Send the file as the tool wrote it.", _shown(place.value))
        return [place for place in found if place.is_object]

    def number(self, unit: str = "") -> float | None:
        """A finite number that can be one in ``unit``; None if it is not there. Anything else is a fault, never 0."""
        if not self:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fault("is no number", "A value that was not measured is left out, or null.", _shown(self.value))
            return None
        try:
            value = float(self.value)
        except OverflowError:
            value = float("inf")
        if wrong := unlikely(value, unit):
            self.fault(*wrong, _shown(self.value))
            return None
        return value

    def whole(self, unit: str = "") -> int | None:
        value = self.number(unit)
        if value is not None and value != int(value):
            self.fault("is no whole number", "Send the file as the tool wrote it.", _shown(self.value))
            return None
        return None if value is None else int(value)

    def text(self, most: int = 300) -> str:
        """A text, shortened; a number or truth value as it is written. Empty if it is not there."""
        if not self or isinstance(self.value, dict | list):
            return ""
        words = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return plain(words, most)


def plain(text: str, most: int = 300) -> str:
    """One line that can be stored and shown: no control characters, no halves of characters."""
    kept = "".join(c if c.isprintable() or c == " " else " " for c in text)
    kept = " ".join(kept.encode("utf-8", "replace").decode().split())
    return kept if len(kept) <= most else kept[: most - 1] + "…"


def documents(data: bytes) -> list[Document]:
    """The JSON texts of a file: one, or one on each line. Raises :class:`Refused`."""
    text = text_of(data)
    _refuse_depth(text)
    try:
        return [Document(text)]
    except Refused as whole:
        if "extra data" not in whole.fault.reason or (whole.fault.line or 1) < 2:
            raise
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > MAX_RUNS:
        words = f"holds {len(lines):,} results, one on each line; at most {MAX_RUNS:,} are taken"
        raise Refused(ImportFault(words, "Split it into several files."))
    return [Document(line, n) for n, line in lines]


def told(docs: Iterable[Document]) -> list[ImportFault]:
    """The faults of all texts of a file, in their order."""
    return [fault for doc in docs for fault in doc.told()]


def text_of(data: bytes) -> str:
    """UTF-8 text within bounds. Raises :class:`Refused`."""
    if len(data) > MAX_BYTES:
        words = f"has {len(data):,} bytes or more; at most {MAX_BYTES:,} are read"
        raise Refused(ImportFault(words, "Leave out what the tool saved of each request, or split it."))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused(ImportFault("is UTF-16 text", "Save it as UTF-8."))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        words = f"is no UTF-8 text: byte {error.start + 1:,} can’t be read"
        raise Refused(ImportFault(words, "Save it as UTF-8; a compressed file is unpacked first.", line=line)) from None
    if not text.strip():
        raise Refused(ImportFault("is empty", "Choose the file that the tool wrote."))
    return text


def _refuse_depth(text: str) -> None:
    depth, opened = 0, 0
    for found in _NESTING.finditer(text):
        mark = found[0]
        if mark in ("[", "{"):
            depth += 1
            opened = max(opened, depth)
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, found.start()) + 1
                raise Refused(
                    ImportFault(f"is nested deeper than {MAX_DEPTH} levels", "No tool that is known here writes such a file.", line=line)
                )
        elif mark in ("]", "}"):
            depth -= 1


def walk(text: str) -> Iterator[tuple[Path, str, int]]:
    """Path, token and offset of each value of a JSON text in its order: keys as an empty token at their own offset. Stops where it is broken."""
    path: list[str | int] = []
    kinds: list[str] = []
    key_due = False
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece in ("{", "["):
            yield tuple(path), piece, found.start()
            kinds.append(piece)
            path.append("" if piece == "{" else 0)
            key_due = piece == "{"
        elif piece in ("}", "]"):
            if not kinds:
                return
            kinds.pop()
            path.pop()
            key_due = False
        elif piece == ",":
            if kinds and kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
            key_due = bool(kinds) and kinds[-1] == "{"
        elif piece == ":":
            key_due = False
        elif key_due:
            path[-1] = _unquoted(piece)
            yield tuple(path), "", found.start()
        else:
            yield tuple(path), piece, found.start()


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token.strip('"')


def dotted(path: Path) -> str:
    words = ""
    for part in path:
        words += f"[{part}]" if isinstance(part, int) else f"{'.' if words else ''}{plain(part, 60)}"
    return words


class _Wrong(ValueError):
    def __init__(self, reason: str, remedy: str, value: str, *, is_key: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.value, self.is_key = reason, remedy, value, is_key


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for twice, _ in pairs:
            if twice in seen:
                break
            seen.add(twice)
        raise _Wrong("is there twice", "Send the file as the tool wrote it.", twice, is_key=True)
    return found


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _Wrong(f"is a number of {len(digits):,} digits", "See what the tool wrote there.", digits)
    return int(digits)


def _constant(word: str) -> Any:
    raise _Wrong(f"is {word}, which is no measurement", "The tool divided by nothing there: measure again, or send another file.", word)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return plain(str(value), 60)


def _near(key: str, value: Any) -> str:
    there = [k for k in islice(value, MOST_NAMES) if isinstance(k, str)] if isinstance(value, dict) else []
    near = difflib.get_close_matches(key, there, n=1, cutoff=0.75)
    return f"; {plain(near[0], 60)} stands there, which is another name" if near else ""
