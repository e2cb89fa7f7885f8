"""Every metric that SpecWeb shows: one table that tooltips, docs and formatting come from.

A definition that changes gets a higher version; numbers stored under the old one can be computed again from evidence.
"""

from __future__ import annotations

from .metric import Metric
from .metrics_of_drafts import OF_DRAFTS
from .metrics_of_hosts import OF_HOSTS
from .metrics_of_time import OF_TIME

METRICS: dict[str, Metric] = {m.id: m for m in (*OF_TIME, *OF_DRAFTS, *OF_HOSTS)}


def markdown_table() -> str:
    """The table as it stands in docs/measurement.md."""
    rows = ["| metric | id/version | unit | definition | from |", "|---|---|---|---|---|"]
    rows += [f"| {m.name} | `{m.definition_id}` | {m.unit or '–'} | {m.definition} | {m.source} |" for m in METRICS.values()]
    return "\n".join(rows)
