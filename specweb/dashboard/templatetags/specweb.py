"""Tags that draw marks, verdicts and numbers, so that each looks the same on every page."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from speccore.commandline import Command

from specweb.accounts.roles import may_submit_somewhere
from specweb.dashboard import formats
from specweb.dashboard.chart_frame import Table
from specweb.dashboard.comparison_table import Cell
from specweb.dashboard.marks import VERDICT_CLASSES, VERDICT_SHAPES, mark_of

register = template.Library()


@register.simple_tag
@lru_cache(maxsize=256)
def mark(mode: str) -> SafeString:
    """The marker of a speculation mode, in its colour."""
    m = mark_of(mode)
    return format_html(
        '<svg class="mark m-{}{}" viewBox="-7 -7 14 14" aria-hidden="true"><path d="{}"/></svg>',
        mode,
        " hollow" if m.hollow else "",
        m.path,
    )


@register.simple_tag
def mark_path(mode: str) -> str:
    return mark_of(mode).path


@register.simple_tag
@lru_cache(maxsize=256)
def verdict(word: str, extra: str = "") -> SafeString:
    """The verdict's shape and word, in its colour."""
    return format_html(
        '<span class="verdict {} {}"><svg viewBox="0 0 12 12" aria-hidden="true"><path d="{}"/></svg>{}</span>',
        VERDICT_CLASSES.get(word, "v-open"),
        extra,
        VERDICT_SHAPES.get(word, VERDICT_SHAPES["inconclusive"]),
        word,
    )


@register.simple_tag
def command_parts(command: Command) -> SafeString:
    """A launch command with its difference marked. Not a template's loop: a preview has one for each arm on each host."""
    parts = [f"<ins>{escape(p.text)}</ins>" if p.added else f"<span>{escape(p.text)}</span>" for p in command.parts]
    return mark_safe(" ".join(parts + [f'<del class="lacks">{escape(m)}</del>' for m in command.missing]))  # noqa: S308  each part is escaped


@register.simple_tag
def number(cell: Cell) -> SafeString:
    """A number as a link to what it was computed from; a withheld one as its reason in short."""
    if not cell.text:
        return SafeString("")
    # Not format_html: pages have hundreds of these, and few definitions.
    note = f" <small>{html.escape(cell.note)}</small>" if cell.note else ""
    kind, title, text = "withheld" if cell.withheld else "n", _escaped(cell.title), html.escape(cell.text)
    if cell.href:
        return SafeString(f'<a class="{kind}" href="{html.escape(cell.href)}" title="{title}">{text}</a>{note}')
    return SafeString(f'<span class="{kind}" title="{title}">{text}</span>{note}')


@lru_cache(maxsize=2048)
def _escaped(text: str) -> str:
    return html.escape(text)


@register.simple_tag
def numeric(table: Table, column: int) -> SafeString:
    """The class of a cell in a column of numbers."""
    return SafeString(' class="num"' if table.heads[column].num else "")


@register.filter
def size(n: float | None) -> str:
    return "" if n is None else formats.byte_size(n)


@register.filter
def duration(seconds: float | None) -> str:
    return "" if seconds is None else formats.duration(seconds)


@register.filter
def short_hash(sha256: str) -> str:
    return formats.short_hash(sha256)


@register.simple_tag
def moment(at: datetime | None) -> SafeString:
    """A time in the server's zone until the browser's script puts the viewer's; UTC on hover."""
    if at is None:
        return SafeString("")
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} UTC</time>',
        utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        f"{utc.day} {utc:%b %Y, %H:%M}",
    )


@register.simple_tag
def may_ask(user: Any) -> bool:
    """Whether somebody may submit experiments for any team (1 statement, if nothing of the page has asked for roles yet)."""
    return may_submit_somewhere(user)


@register.simple_tag
def verdict_class(word: str) -> str:
    return VERDICT_CLASSES.get(word, "v-open")


@register.simple_tag
def percent(share: float) -> str:
    """``0.03`` → ``3 %``."""
    return f"{100 * share:.3g} %"
