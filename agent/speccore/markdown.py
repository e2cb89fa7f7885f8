"""Markdown that is pasted into somebody's issue or pull request: what people named stays text there, and all of it fits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

#: Characters of an issue, a pull request or a comment on GitHub.
MOST_CHARS = 65_536
_SPECIAL = frozenset("\\|*_<>[]`~&$")
#: Invisible, and ends what GitHub would make a link or a picture of.
_BREAK = "&#8203;"
#: Mentions, references to issues, addresses and emoji, each cut where the group ends.
_LINKED = (
    re.compile(r"(@)(?=[A-Za-z0-9])"),
    re.compile(r"(#)(?=\d)"),
    re.compile(r"\b(GH-)(?=\d)", re.IGNORECASE),
    re.compile(r"([A-Za-z]:)(?=//)"),
    re.compile(r"\b(www)(?=\.)", re.IGNORECASE),
    re.compile(r"(:)(?=[A-Za-z0-9_+-]+:)"),
)
#: What may be the hash of a commit, which GitHub links from 7 digits on.
_COMMIT, _NO_COMMIT = re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{7,40}\b"), 6
#: Controls that turn the direction of what follows.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def text(words: str) -> str:
    """Text that stands as it is: no markup, no cell, no mention, no reference. One line."""
    plain = _one_line(words)
    marks = {m.end(1) for pattern in _LINKED for m in pattern.finditer(plain)}
    marks |= {i for m in _COMMIT.finditer(plain) for i in range(m.start() + _NO_COMMIT, m.end(), _NO_COMMIT)}
    found = []
    for i, c in enumerate(plain):
        found.append(_BREAK if i in marks else "")
        found.append(f"\\{c}" if c in _SPECIAL else c)
    return "".join(found)


def paragraph(words: str) -> str:
    """The same where a line begins, which must be no heading, list, quotation or rule."""
    told = text(words).strip()
    if re.match(r"[#+=-]", told):
        return f"\\{told}"
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", told)


def code(words: str) -> str:
    """A span of code, which may stand in a table."""
    plain = _one_line(words)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", plain)), default=0))
    pad = " " if plain.startswith("`") or plain.endswith("`") or not plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}".replace("|", "\\|")


def _one_line(words: str) -> str:
    kept = (c for c in words if c not in _TURNS)
    return "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs") else c for c in kept)


def fenced(body: str, language: str = "") -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", body)), default=0))
    return f"{fence}{language}\n{body.rstrip(chr(10))}\n{fence}"


def table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Part:
    """A part of a report. ``lines`` may be cut from their end, what stands around them not; ``rank``: the lowest goes first, 0 never."""

    name: str
    lines: Sequence[str]
    head: str = ""
    rank: int = 0
    around: Callable[[str], str] = field(default=lambda body: body)
    left: int = 0  # lines that were cut

    def __str__(self) -> str:
        more = [f"… and {self.left:,} more"] if self.left else []
        if more and self.lines and self.lines[-1].startswith("|"):
            more = ["", *more]
        body = "\n".join([*([self.head] if self.head else []), *self.lines, *more])
        return self.around(body) if body else ""


def folded(title: str) -> Callable[[str], str]:
    return lambda body: f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def joined(parts: Sequence[Part], elsewhere: str = "") -> str:
    """All parts in at most :data:`MOST_CHARS`; what was left out for that is said, and ``elsewhere`` where it is."""
    kept = list(parts)
    out: list[str] = []
    while (over := _size(kept, out, elsewhere) - MOST_CHARS) > 0:
        droppable = [p for p in kept if p.rank]
        if droppable:
            first = min(droppable, key=lambda p: p.rank)
            kept.remove(first)
            out.append(first.name)
            continue
        longest = max(kept, key=lambda p: len("\n".join(p.lines)))
        if len(longest.lines) < 2:
            break
        n = _n_to_cut(longest.lines, over)
        kept[kept.index(longest)] = replace(longest, lines=longest.lines[:-n], left=longest.left + n)
    return _whole(kept, out, elsewhere)


def _n_to_cut(lines: Sequence[str], over: int) -> int:
    n = size = 0
    while size < over and n < len(lines) - 1:
        n += 1
        size += _chars(lines[-n]) + 1
    return n


def _whole(parts: Sequence[Part], out: Sequence[str], elsewhere: str) -> str:
    said = []
    if out:
        said.append(f"Left out, since no more than {MOST_CHARS:,} characters fit: {', '.join(out)}.{f' {elsewhere}' if elsewhere else ''}")
    return "\n\n".join([*(told for p in parts if (told := str(p))), *said]) + "\n"


def _size(parts: Sequence[Part], out: Sequence[str], elsewhere: str) -> int:
    return _chars(_whole(parts, out, elsewhere))


def _chars(words: str) -> int:
    """As GitHub and a browser count: what lies beyond the first plane of Unicode is two."""
    return len(words.encode("utf-16-le", "surrogatepass")) // 2
