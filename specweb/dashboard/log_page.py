"""The text of an evidence file for its page: a range of lines, what was looked for in it, and the ways to other lines."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlencode

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from specweb.results import evidence_search, evidence_text
from specweb.results.evidence_search import Found
from specweb.results.evidence_text import Line
from specweb.results.models import EvidenceFile
from specweb.results.store import open_at_line, open_blob

from . import attempt_page

LINES_PER_PAGE = 2_000
#: A JSON document up to this size is shown indented.
MAX_JSON_BYTES = 512 * 1024


@dataclass(frozen=True)
class Asked:
    """What an address asks for. Zero: not given."""

    line: int
    page: int
    field: str
    text: str  # looked for
    since: int  # the line from which it is looked for


@dataclass(frozen=True)
class Shown:
    """A line; ``html`` is its text with what was looked for marked."""

    line: Line
    html: SafeString
    is_hit: bool


def context(file: EvidenceFile, asked: Asked) -> dict[str, Any]:
    """Raises ``OSError`` or ``ZstdError`` if the stored file can't be read."""
    spread = _spread(file)
    found = _search(file, spread, asked) if asked.text else None
    marked = asked.line or (found.current if found and not asked.page else 0)
    page = (marked - 1) // LINES_PER_PAGE + 1 if marked else asked.page or 1
    more: dict[str, Any]
    if spread is not None:
        more = {"lines": [Line(i, evidence_text.visible(text)) for i, text in enumerate(spread, 1)], "more": False, "indented": True}
        more["hits"] = attempt_page.hits(spread, asked.field)
    else:
        more = _lines(file, page, marked, asked.field)
    hits = {marked} | more.get("hits", set())
    more["lines"] = [Shown(line, marked_text(line.text, asked.text), line.n in hits) for line in more["lines"]]
    return more | _ways(asked, page, more) | {"marked": marked, "page": page, "found": found, "search": _told(found, asked)}


def marked_text(text: str, wanted: str) -> SafeString:
    """A line, escaped, with what was looked for marked."""
    if not wanted:
        return escape(text)
    cut = re.split(f"({re.escape(wanted)})", text, flags=re.IGNORECASE | re.ASCII)
    marked = format_html_join("", "{}<mark>{}</mark>", zip(cut[::2], cut[1::2], strict=False))
    return format_html("{}{}", marked, cut[-1])


def _spread(file: EvidenceFile) -> list[str] | None:
    """A JSON document in lines of its own."""
    if not file.name.endswith(".json") or file.blob.bytes > MAX_JSON_BYTES:
        return None
    with open_blob(file.blob) as stream:
        return evidence_text.spread_json(stream.read(MAX_JSON_BYTES))


def _lines(file: EvidenceFile, page: int, marked: int, field: str) -> dict[str, Any]:
    """The lines of a page; beside a marked record its content spread out."""
    first = (page - 1) * LINES_PER_PAGE + 1
    stream, at, n_lines = open_at_line(file.blob, first)
    with stream:
        text = evidence_text.read_lines(stream, first, LINES_PER_PAGE, at=at, whole=marked)
    if n_lines is None and text.lines and not text.more:
        n_lines = text.lines[-1].n
    found: dict[str, Any] = {"lines": text.lines, "more": text.more, "n_lines": n_lines, "all_lines": f"{n_lines:,}" if n_lines else ""}
    if marked and file.name.endswith(".jsonl"):
        stream, at, _ = open_at_line(file.blob, marked)
        with stream:
            record = evidence_text.read_record(stream, marked, at=at)
        found |= {"record": attempt_page.record_lines(record, field)} if record else {}
    return found


@contextmanager
def _opened(file: EvidenceFile, spread: Sequence[str] | None, line: int) -> Iterator[tuple[BinaryIO, int]]:
    """The text to search, and the line that it begins in."""
    if spread is not None:
        yield io.BytesIO("\n".join(spread).encode()), 1
        return
    stream, at, _ = open_at_line(file.blob, line)
    with stream:
        yield stream, at


def _search(file: EvidenceFile, spread: Sequence[str] | None, asked: Asked) -> Found:
    since = asked.since or 1
    with _opened(file, spread, since) as (stream, at):
        return evidence_search.search(stream, asked.text, asked.line, at=at, since=since)


def _told(found: Found | None, asked: Asked) -> dict[str, str]:
    """The result of a search in words, and the addresses of the hits beside the marked line."""
    if found is None:
        return {}
    where = f" from line {asked.since:,} on" if asked.since > 1 else ""
    ended = f"; time was up at line {found.searched_to:,}" if found.searched_to else ""
    many = f"{found.n:,} lines{' or more' if found.more else ''}" if found.n != 1 or found.more else "1 line"
    words = f"{many}{where} with it{ended}" if found.n else f"no line{where} has it{ended}"
    if found.n_to_current and found.n > 1:
        words = f"hit {found.n_to_current:,} of {words}"
    kept = {"q": asked.text} | ({"since": asked.since} if asked.since > 1 else {})
    return {
        "words": words,
        "previous": _hit(kept, found.previous),
        "next": _hit(kept, found.following),
        "on": f"?{urlencode({'q': asked.text, 'since': found.searched_to})}" if found.searched_to else "",
    }


def _hit(kept: Mapping[str, Any], line: int) -> str:
    return f"?{urlencode({**kept, 'line': line})}#L{line}" if line else ""


def _ways(asked: Asked, page: int, shown: Mapping[str, Any]) -> dict[str, str]:
    """To the pages beside this one, and to the ends where these are known."""

    def to(n: int) -> str:
        return "?" + urlencode({"page": n} | ({"q": asked.text} if asked.text else {}))

    n_lines = shown.get("n_lines")
    last = (n_lines - 1) // LINES_PER_PAGE + 1 if n_lines else 0
    return {
        "first_href": to(1) if page > 2 else "",
        "previous": to(min(page - 1, last) if last else page - 1) if page > 1 else "",
        "next": to(page + 1) if shown["more"] else "",
        "last_href": to(last) if shown["more"] and last > page + 1 else "",
    }
