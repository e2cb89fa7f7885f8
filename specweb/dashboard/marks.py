"""How speculation modes and verdicts look: one colour class, one marker and one word each, on every page and plot."""

from __future__ import annotations

from dataclasses import dataclass

from speccore.spec import Arm


@dataclass(frozen=True)
class Mark:
    """``symbol`` is Plotly's name; ``path`` draws the same shape in a box from -6 to 6."""

    symbol: str
    path: str
    hollow: bool = False


_CIRCLE = "M5 0A5 5 0 1 1-5 0A5 5 0 1 1 5 0Z"
_STAR = "M0-6L1.5-2H5.7L2.4.7 3.5 4.9 0 2.4-3.5 4.9-2.4.7-5.7-2H-1.5Z"

#: No two modes share a marker, so that colour is never the only difference.
MARKS: dict[str, Mark] = {
    "off": Mark("circle-open", "M4.3 0A4.3 4.3 0 1 1-4.3 0A4.3 4.3 0 1 1 4.3 0Z", hollow=True),
    "draft": Mark("circle", _CIRCLE),
    "mtp": Mark("diamond", "M0-6L6 0 0 6-6 0Z"),
    "eagle": Mark("star-diamond", "M0-6L1.9-1.9 6 0 1.9 1.9 0 6-1.9 1.9-6 0-1.9-1.9Z"),
    "eagle3": Mark("triangle-up", "M0-5.5L5.5 4.5H-5.5Z"),
    "medusa": Mark("hexagram", "M0-6L1.75-3H5.2L3.5 0 5.2 3H1.75L0 6-1.75 3H-5.2L-3.5 0-5.2-3H-1.75Z"),
    "mlp-speculator": Mark("hourglass", "M-5-5.5H5L-5 5.5H5Z"),
    "dflash": Mark("triangle-down", "M0 5.5L5.5-4.5H-5.5Z"),
    "dspark": Mark("star", _STAR),
    "ngram": Mark("square", "M-4.5-4.5H4.5V4.5H-4.5Z"),
    "ngram-simple": Mark("cross", "M-2-5.5H2V-2H5.5V2H2V5.5H-2V2H-5.5V-2H-2Z"),
    "ngram-map-k": Mark("hexagon", "M-5.2-3L0-6 5.2-3V3L0 6-5.2 3Z"),
    "ngram-map-k4v": Mark("pentagon", "M0-6L5.7-1.9 3.5 4.9H-3.5L-5.7-1.9Z"),
    "ngram-mod": Mark("triangle-right", "M5.5 0L-4.5-5.5V5.5Z"),
    "ngram-cache": Mark("triangle-left", "M-5.5 0L4.5-5.5V5.5Z"),
    "suffix": Mark("x", "M-5.5-3L-3-5.5 0-2.5 3-5.5 5.5-3 2.5 0 5.5 3 3 5.5 0 2.5-3 5.5-5.5 3-2.5 0Z"),
}

#: Verdict word → path of its shape in a box of 12, drawn as a line.
VERDICT_SHAPES: dict[str, str] = {
    "keep": "M1.8 6.6L4.8 9.6 10.4 2.6",
    "shorten": "M2 2V10M10.5 6H4.6M7 3.4L4.4 6 7 8.6",
    "disable": "M2.6 2.6L9.4 9.4M9.4 2.6L2.6 9.4",
    "inconclusive": "M1.2 7.2C2.8 3 4.6 3.4 6 6S9.2 9 10.8 4.8",
    "invalid": "M6 1.2L11 10.6H1ZM6 4.6V7.2M6 8.8V9.1",
    "not engaged": "M6 1.4A4.6 4.6 0 1 1 5.99 1.4ZM2.8 9.2L9.2 2.8",
}

#: Verdict word → class of its colour.
VERDICT_CLASSES: dict[str, str] = {
    "keep": "v-keep",
    "shorten": "v-shorten",
    "disable": "v-disable",
    "inconclusive": "v-open",
    "invalid": "v-invalid",
    "not engaged": "v-invalid",
}


def mode_words(arm: Arm) -> str:
    """Who drafts, e.g. ``draft + ngram-mod``: an arm's mark tells the first only."""
    return " + ".join(arm.drafters)


def mark_of(mode: str) -> Mark:
    """The mark of a mode; a mode that a newer release knows gets the plain circle."""
    return MARKS.get(mode, MARKS["draft"])
