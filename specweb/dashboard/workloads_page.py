"""What the pages about workloads show: which there are, whose they are, and the items of one with their sizes. No database access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from django.urls import reverse
from speccore.contexts import BYTES_PER_TOKEN
from speccore.tasks import messages_before
from speccore.workload import Check, Item
from speccore.workload import Workload as Content

from specweb.experiments.models import Workload
from specweb.results.workload_queries import Counted

#: Of a longer text the page shows the beginning; the file has it whole.
SHOWN = 3_000
START = 90
ITEMS_PER_PAGE = 100


@dataclass(frozen=True)
class Version:
    """One version as the list shows it."""

    id: int
    ref: str
    version: int
    title: str
    whose: str
    standing: str  # 'built in', 'private', 'shared', 'archived'
    n_items: int
    n_warmup: int
    hash: str
    created_at: datetime

    @property
    def href(self) -> str:
        return reverse("workload", args=[self.id])


@dataclass(frozen=True)
class Named:
    """A workload with its versions, newest first."""

    name: str
    newest: Version
    earlier: list[Version] = field(default_factory=list)


@dataclass(frozen=True)
class Lists:
    own: list[Named]
    built_in: list[Named]
    archived: list[Version]


def lists(rows: Sequence[Any]) -> Lists:
    """Of rows by name, newest version first, with their numbers of items."""
    offered = [r for r in rows if not r.archived_at]
    by_name = [[version(r) for r in group] for _, group in groupby(offered, key=lambda r: (r.name, r.team_id))]
    named = [Named(own[0].ref.partition("@")[0], own[0], own[1:]) for own in by_name]
    return Lists(
        own=[n for n in named if n.newest.standing != "built in"],
        built_in=[n for n in named if n.newest.standing == "built in"],
        archived=[version(r) for r in rows if r.archived_at],
    )


def version(row: Any) -> Version:
    who = row.owner.get_username() if row.owner else ""
    return Version(
        id=row.pk,
        ref=str(row),
        version=row.version,
        title=row.title,
        whose=", ".join(part for part in (row.team.name if row.team else "", who) if part),
        standing=standing(row),
        n_items=getattr(row, "n_items", 0),
        n_warmup=getattr(row, "n_warmup", 0),
        hash=row.content_hash,
        created_at=row.created_at,
    )


def standing(row: Workload) -> str:
    if row.archived_at:
        return "archived"
    return "built in" if row.team_id is None else "private" if row.private else "shared"


@dataclass(frozen=True)
class Text:
    role: str
    text: str
    n_more: int  # characters that are not shown


@dataclass(frozen=True)
class ItemLine:
    """An item with what it takes. ``tokens`` by an engine's count, ``about`` by a rule of thumb."""

    id: str
    warmup: bool
    n_turns: int
    n_chars: int
    tokens: Counted | None
    about: int
    start: str
    texts: list[Text]
    limits: str


@dataclass(frozen=True)
class Sizes:
    """Least, middle and most of some lengths."""

    least: int
    median: int
    most: int


@dataclass(frozen=True)
class Summary:
    n_items: int
    n_warmup: int
    n_distinct: int
    chars: Sizes
    about: Sizes
    counted: Sizes | None
    n_counted: int
    counted_by: str
    checks: str
    kind: str


def items_of(content: Content) -> list[tuple[Item, bool]]:
    """(item, whether it is warm-up), timed ones first."""
    return [*((i, False) for i in content.items), *((i, True) for i in content.warmup)]


def lines(part: Iterable[tuple[Item, bool]], counted: Mapping[str, Counted]) -> list[ItemLine]:
    found = []
    for item, warmup in part:
        texts = [t for turn in _asked(item) for t in turn]
        read = sum(len(text) for _, text in texts)
        found.append(
            ItemLine(
                id=item.id,
                warmup=warmup,
                n_turns=len(item.turns),
                n_chars=read,
                tokens=None if item.turns else counted.get(item.id),
                about=_about(texts),
                start=" ".join(" ".join(text[: 2 * START] for _, text in texts[:3]).split())[: 2 * START],
                texts=[Text(role, text[:SHOWN], max(0, len(text) - SHOWN)) for role, text in texts],
                limits=_limits(item),
            )
        )
    return found


def summary(content: Content, counted: Mapping[str, Counted]) -> Summary:
    texts = [[t for turn in _asked(item) for t in turn] for item in content.items]
    tokens = [c.tokens for item in content.items if not item.turns and (c := counted.get(item.id))]
    by = sorted({" on ".join(filter(None, (c.model, c.host))) for c in counted.values()})
    kinds = sorted({check.kind for item in content.items for check in _checks(item)})
    n_checked = sum(bool(_checks(item)) for item in content.items)
    return Summary(
        n_items=len(content.items),
        n_warmup=len(content.warmup),
        n_distinct=len({item.opening for item in content.items}),
        chars=_sizes([sum(len(text) for _, text in own) for own in texts]),
        about=_sizes([_about(own) for own in texts]),
        counted=_sizes(tokens) if tokens else None,
        n_counted=len(tokens),
        counted_by="; ".join(by[:3]),
        checks=f"{n_checked} of {len(content.items)}: {', '.join(kinds)}" if kinds else "",
        kind="tasks of several turns" if content.is_task else "chats" if any(i.history for i in content.items) else "single prompts",
    )


def _asked(item: Item) -> list[list[tuple[str, str]]]:
    """What is new in each request."""
    if not item.turns:
        return [item.messages]
    return [
        [messages_before(item.turns, n)[-1], *([("assistant", turn.answer)] if turn.answer else [])] for n, turn in enumerate(item.turns, 1)
    ]


def _checks(item: Item) -> list[Check]:
    return [c for c in (item.check, *(turn.check for turn in item.turns)) if c]


def _about(texts: Sequence[tuple[str, str]]) -> int:
    return max(1, round(sum(len(text.encode()) for _, text in texts) / BYTES_PER_TOKEN))


def _sizes(values: Sequence[int]) -> Sizes:
    ordered = sorted(values)
    return Sizes(ordered[0], ordered[len(ordered) // 2], ordered[-1])


def _limits(item: Item) -> str:
    parts = [
        f"{len(item.turns)} turns" if item.turns else "",
        f"check {', '.join(sorted({c.kind for c in _checks(item)}))}" if _checks(item) else "",
        f"at most {item.max_tokens} tokens" if item.max_tokens else "",
        f"{item.reference_tokens} tokens of work" if item.reference_tokens else "",
    ]
    return ", ".join(part for part in parts if part)
