"""Answers as rows of tables, and the heads that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speccore.attached import LABEL
from speccore.formats import reason
from speccore.measurement import Withheld

from .models import Comparison, Experiment, Host, Job, Maybe, Ratio, Report, Row, Workload
from .screen import Column

COMPARISONS = (
    Column("work", least=12),
    Column("arm", least=8),
    Column("speed-up", right=True),
    Column("95 % interval", right=True),
    Column("blocks", right=True),
    Column("accepted", right=True),
    Column("tokens/pass", right=True),
    Column("memory", right=True),
    Column("verdict", least=12),
)
HOST = Column("host", least=6)
ROWS = (
    Column("hardware", least=10),
    Column("work", least=8),
    Column("target", least=8),
    Column("arm", least=10),
    Column("speed-up", right=True),
    Column("interval", right=True),
    Column("blocks", right=True),
    Column("runs", right=True),
    Column("verdict", least=12),
    Column("measured"),
)
EXPERIMENTS = (Column("id"), Column("state"), Column("team", least=6), Column("by", least=6), Column("created"), Column("name", least=16))
HOSTS = (
    Column("host", least=6),
    Column("team", least=6),
    Column("state"),
    Column("hardware", least=12),
    Column("engines", least=10),
    Column("models", least=8),
    Column("seen"),
)
WORKLOADS = (
    Column("workload", least=8),
    Column("title", least=12),
    Column("prompts", right=True),
    Column("team", least=6),
    Column("who reads it"),
)
REPORTS = (
    Column("id"),
    Column("tool"),
    Column("team", least=6),
    Column("runs", right=True),
    Column("models", least=10),
    Column("title", least=12),
)


def comparison_cells(c: Comparison) -> tuple[str, ...]:
    """Under :data:`COMPARISONS`. What is withheld shows as –; the JSON has the reason, as the page has."""
    ratio = c.speedup if isinstance(c.speedup, Ratio) else None
    verdict = c.verdict.word + (f" · {reason(c.verdict.reason)}" if c.verdict.reason else "")
    verdict += (f" · {LABEL}" if c.not_restarted else "") + (" ★" if c.recommended else "")
    memory = _figure(c.memory_bill_bytes)
    return (
        c.point,
        c.arm,
        f"{ratio.estimate:.2f}×" if ratio else "–",
        interval(ratio.low, ratio.high) if ratio else "–",
        str(ratio.n_blocks) if ratio else "0",
        _shown(c.acceptance_rate),
        _shown(c.tokens_per_target_pass),
        "–" if memory is None else f"{memory / 2**20:+z.0f} MiB",
        verdict,
    )


def compared(rows: Sequence[Comparison]) -> tuple[tuple[Column, ...], list[tuple[str, ...]]]:
    """Head and cells, with the host where there are several. An interval of an early look, or over added blocks, has its own confidence."""
    several = len({c.job for c in rows}) > 1
    looked = any(c.raw.get("look") or c.raw.get("joined") for c in rows)
    head = tuple(replace(c, head="interval") if looked and "interval" in c.head else c for c in COMPARISONS)
    cells = [((c.host or "–",) if several else ()) + comparison_cells(c) for c in rows]
    return ((HOST,) if several else ()) + head, cells


def row_cells(r: Row) -> tuple[str, ...]:
    work = r.work + (f" ×{r.concurrency}" if r.concurrency > 1 else "") + (f" ctx {r.context:,}" if r.context else "")
    verdict = r.verdict + (f" · {reason(r.reason)}" if r.reason else "")
    verdict += (" · self-run" if r.self_run else "") + (f" · {LABEL}" if r.not_restarted else "") + (" ★" if r.recommended else "")
    return (
        r.hardware,
        work,
        r.target,
        r.arm_in_words,
        f"{r.speedup:.2f}×" if r.speedup is not None else "–",
        interval(r.low, r.high),
        str(r.n_blocks),
        str(r.n_runs),
        verdict,
        f"{r.measured_at:%Y-%m-%d}",
    )


def experiment_cells(e: Experiment) -> tuple[str, ...]:
    return (e.id, e.state, e.team, e.created_by or "–", f"{e.created_at:%Y-%m-%d %H:%M}", e.name)


def host_cells(h: Host) -> tuple[str, ...]:
    engines = [" ".join(w for w in (r.engine, r.version, r.backend) if w) for r in h.runtimes]
    state = h.state + (" · draining" if h.draining and h.state != "draining" else "")
    seen = f"{h.last_seen_at:%Y-%m-%d %H:%M}" if h.last_seen_at else "never"
    return (h.name, h.team, state, h.hardware or "–", ", ".join(engines) or "–", ", ".join(m.alias for m in h.models) or "–", seen)


def workload_cells(w: Workload) -> tuple[str, ...]:
    readers = "you" if w.private else "the team" if w.team else "everybody"
    return (w.ref, w.title, str(w.n_items), w.team or "built in", readers + (" · archived" if w.archived_at else ""))


def report_cells(r: Report) -> tuple[str, ...]:
    return (r.id, r.tool_name, r.team, str(r.n_runs), ", ".join(r.models) or "–", r.title)


def job_line(j: Job) -> str:
    """A job in a line: where, what became of it, and why."""
    parts = [j.host or "any host", "cancelling" if j.cancelling else "paused" if j.paused and not j.is_final else j.state]
    if j.n_trials:
        parts.append(f"{j.n_trials_done} of {j.n_trials} trials")
    if j.hardware:
        parts.append(j.hardware)
    why = str((j.error or {}).get("message") or (j.reason if not j.is_measured else ""))
    return " · ".join([*parts, *([why] if why and why != j.state else [])])


def interval(low: float | None, high: float | None) -> str:
    return f"{low:.2f}–{high:.2f}" if low is not None and high is not None else "–"


def _figure(value: Maybe) -> float | None:
    return None if isinstance(value, Withheld) else value


def _shown(value: Maybe) -> str:
    number = _figure(value)
    return "–" if number is None else f"{number:.2f}"
