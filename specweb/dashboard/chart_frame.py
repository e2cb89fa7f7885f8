"""What every chart of the site has around it: title, unit, the sentence where it is empty, what it lacks, its table. No database."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .comparison_table import Cell

#: So many rows that a chart lacks are named; the rest is counted.
LACKS_NAMED = 12
MOST_IN_A_FILE_NAME = 80


@dataclass(frozen=True)
class TableHead:
    text: str
    num: bool = True
    title: str = ""


@dataclass(frozen=True)
class Table:
    """The numbers behind a chart. The first cell of each row is its head."""

    heads: list[TableHead]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Lack:
    """A row that a chart has no mark for, and the reason in words."""

    what: str
    why: str


@dataclass(frozen=True)
class Chart:
    """``name`` is its place's id; ``kind`` names the drawing in ``static/specweb/``, the same as the name if empty.

    ``data`` is what the drawing gets, carried by the page; ``source`` is an address that gives it instead, asked for when the
    chart comes near. With neither, ``empty`` stands in its place and says why, ``remedy`` what to do about it.
    ``numbers`` says where its numbers stand if it has no table of its own.
    """

    name: str
    title: str
    caption: str
    label: str
    data: Any = None
    source: str = ""
    kind: str = ""
    height: int = 0
    empty: str = ""
    remedy: str = ""
    remedy_href: str = ""
    notes: Sequence[str] = ()  # what it shows, in words, where the intervals allow to say it
    lacks: Sequence[Lack] = ()
    table: Table | None = None
    numbers: str = ""
    about: Sequence[str] = field(default_factory=list)  # what the file's name says beside the title

    @property
    def drawn_as(self) -> str:
        return self.kind or self.name

    @property
    def is_drawn(self) -> bool:
        return self.data is not None or bool(self.source)

    @property
    def lacks_named(self) -> Sequence[Lack]:
        return self.lacks[:LACKS_NAMED]

    @property
    def n_more_lacks(self) -> int:
        return max(0, len(self.lacks) - LACKS_NAMED)

    @property
    def file(self) -> str:
        """Stem of the files that it is saved as: ``specweb-speed-up-by-hardware-demo-target``."""
        return file_stem([self.title, *self.about])


def file_stem(words: Sequence[str]) -> str:
    """Words as a file name that every system takes: plain letters, digits and hyphens."""
    text = unicodedata.normalize("NFKD", " ".join(["specweb", *words])).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MOST_IN_A_FILE_NAME].strip("-")
