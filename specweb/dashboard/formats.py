"""Numbers as people read them: a fixed unit for each column, digits that mean something, no zero for what is missing."""

from __future__ import annotations

from datetime import datetime, timedelta


def ratio(value: float) -> str:
    """A speed-up: ``2.41×``; three digits from 10 on."""
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def ratio_range(low: float, high: float) -> str:
    return f"{low:.2f}–{high:.2f}" if high < 10 else f"{low:.1f}–{high:.1f}"


def byte_size(n: float) -> str:
    """``3.1 MiB``; whole bytes below 1 KiB."""
    if abs(n) < 1024:
        return f"{n:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        n /= 1024
        if abs(n) < 1024 or unit == "TiB":
            break
    return f"{n:.1f} {unit}" if abs(n) < 100 else f"{n:.0f} {unit}"


def signed_size(n: float) -> str:
    text = byte_size(abs(n))
    return f"−{text}" if n < 0 else f"+{text}"


def signed_points(share: float) -> str:
    """A difference of shares in points: ``+1.2``, ``−100``. The interval's own arithmetic may go beyond what shares can differ by."""
    points = 100 * min(1.0, max(-1.0, share))
    text = f"{abs(points):.0f}" if abs(points) >= 10 else f"{abs(points):.1f}"
    return f"−{text}" if points < 0 else f"+{text}"


def duration(seconds: float) -> str:
    """``8.4 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def long_time(span: timedelta) -> str:
    """A span that is set, not measured: ``24 h``, ``7 days``, ``30 s``."""
    seconds = span.total_seconds()
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def count(n: float) -> str:
    """``3.7 M``, ``8.2 B``; whole numbers below a thousand."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f}"


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None


def short_hash(sha256: str) -> str:
    """Enough of a hash to recognise it."""
    return f"{sha256[:8]}…{sha256[-4:]}" if len(sha256) > 16 else sha256


def shortened(text: str, most: int = 34) -> str:
    """A reason in short, cut at a word; the whole stands in the title."""
    if len(text) <= most:
        return text
    return text[:most].rsplit(" ", 1)[0][: most - 1].rstrip(",;:") + "…"
