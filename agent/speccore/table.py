"""A job's analysis as text for a terminal: the table of comparisons, the answers, and what the integrity panel found."""

from __future__ import annotations

from .attached import LABEL
from .formats import reason
from .measurement import ComparisonResult, Interval, JobAnalysis, Maybe, value_of
from .position_text import position_lines
from .quality_results import AgreementResult, SamplingResult
from .task_text import task_lines

HEAD = ("work", "arm", "speed-up", "95 % interval", "blocks", "accepted", "tokens/pass", "memory", "verdict")
LEFT = frozenset({0, 1, 8})


def head(analysis: JobAnalysis) -> tuple[str, ...]:
    """:data:`HEAD`; an interval of an early look, or over added blocks, has a confidence of its own, which the verdict tells."""
    looked = any(c.look or c.joined for c in analysis.comparisons)
    return tuple("interval" if looked and "interval" in word else word for word in HEAD)


def comparison_table(analysis: JobAnalysis) -> str:
    """One line for each arm and point. What is withheld shows as –, its reason stands in the verdict or in the JSON."""
    rows = [head(analysis), *(cells(c) for c in analysis.comparisons)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = []
    for row in rows:
        padded = [cell.ljust(width) if i in LEFT else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def analysis_text(analysis: JobAnalysis) -> str:
    """All of it, with a blank line between the parts."""
    parts = (
        comparison_table(analysis),
        answer_lines(analysis),
        task_lines(analysis),
        position_lines(analysis),
        fit_lines(analysis),
        _quality(analysis),
        failed_checks(analysis),
    )
    return "\n\n".join(part for part in parts if part)


def answer_lines(analysis: JobAnalysis) -> str:
    return "\n".join(f"{a['point']}: {a['sentence']}" for a in analysis.answers)


def fit_lines(analysis: JobAnalysis) -> str:
    """The largest context that loads with each arm; empty where nobody looked."""
    arms = analysis.fit.arms if analysis.fit else []
    return "\n".join([*(["largest context:"] if arms else []), *(f"  {a.arm}: {a.words()}" for a in arms)])


def quality_lines(analysis: JobAnalysis) -> list[str]:
    """Whether the answers are still the target's: each arm at each kind of work, then the baseline beside itself, then the sampling rule."""
    lines = []
    for c in (c for c in analysis.comparisons if c.mode != "off"):
        lines += [f"{c.point}, {c.arm}: {m.name} {m.state}: {m.sentence}" for m in c.quality]
    own = {c.point: c.own_agreement.words for c in analysis.comparisons if isinstance(c.own_agreement, AgreementResult)}
    lines += [f"{point}, the baseline beside itself: {words}" for point, words in own.items()]
    if isinstance(analysis.sampling, SamplingResult):
        lines += [f"sampling rule, {a.arm}: {a.outcome}: {a.words}" for a in analysis.sampling.arms]
    elif analysis.sampling is not None:
        lines.append(analysis.sampling.withheld)
    return lines


def _quality(analysis: JobAnalysis) -> str:
    lines = quality_lines(analysis)
    return "\n".join([*(["quality (not checked is not held; 2 points may be lost):"] if lines else []), *(f"  {line}" for line in lines)])


def failed_checks(analysis: JobAnalysis) -> str:
    """The integrity panel in short: what failed with its sentence, what was not checked by name."""
    checks = [("", c) for c in analysis.checks]
    checks += [(f"{comparison.point}, {comparison.arm}", c) for comparison in analysis.comparisons for c in comparison.checks]
    failed: dict[str, list[str]] = {}
    for where, c in checks:
        if c.state == "failed":
            failed.setdefault(f"  {c.kind}: {c.name}: {c.sentence}", []).append(where)
    unchecked = dict.fromkeys(c.name for _, c in checks if c.state == "not checked")
    lines = ["integrity: " + ("these checks failed" if failed else "no check failed")]
    lines += [
        f"{line} ({places[0] if len(places) == 1 else f'{len(places)} comparisons'})" if places[0] else line
        for line, places in failed.items()
    ]
    if unchecked:
        lines.append(f"  not checked: {', '.join(unchecked)}")
    return "\n".join(lines)


def cells(c: ComparisonResult) -> tuple[str, ...]:
    """A comparison under :data:`HEAD`."""
    speedup = c.speedup if isinstance(c.speedup, Interval) else None
    interval = f"{speedup.low:.2f}–{speedup.high:.2f}" if speedup and speedup.low is not None and speedup.high is not None else "–"
    verdict = f"{c.verdict.word} · {reason(c.verdict.reason)}" if c.verdict.reason else c.verdict.word
    verdict += f" · {LABEL}" if c.not_restarted else ""
    return (
        c.point,
        c.arm,
        f"{speedup.estimate:.2f}×" if speedup else "–",
        interval,
        str(speedup.n_blocks) if speedup else "0",
        _shown(c.acceptance_rate, "{:.2f}"),
        _shown(c.tokens_per_target_pass, "{:.2f}"),
        _memory(c.memory_bill_bytes),
        verdict + (" ★" if c.recommended else ""),
    )


def _shown(number: Maybe, form: str) -> str:
    value = value_of(number)
    return "–" if value is None else form.format(value)


def _memory(number: Maybe) -> str:
    value = value_of(number)
    return "–" if value is None else f"{value / 2**20:+z.0f} MiB"
