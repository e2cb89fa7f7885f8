"""The integrity panel: one line for each check, the worst first, and all of it in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from speccore.measurement import Check, ComparisonResult, JobAnalysis


@dataclass(frozen=True)
class CheckLine:
    """A check of the integrity panel, over the job and all its comparisons."""

    name: str
    kind: str
    state: str  # passed, failed, warning, not checked
    sentences: list[str]
    n: int
    n_failed: int
    evidence: list[tuple[str, str]] = field(default_factory=list)
    which: str = ""  # the comparisons it is about, where another line has the same name


@dataclass(frozen=True)
class Integrity:
    n: int
    n_passed: int
    n_failed: int
    n_warnings: int
    n_unchecked: int
    headline: str  # the worst of what failed or warns, and how many more there are
    lines: list[CheckLine]


_ORDER = {"failed": 0, "warning": 1, "not checked": 2, "passed": 3}


def integrity(analysis: JobAnalysis) -> Integrity:
    """One line for each check, the worst first; checks of single comparisons are gathered under their name."""
    gathered: dict[tuple[str, str], list[tuple[ComparisonResult | None, Check]]] = {}
    for check in analysis.checks:
        gathered.setdefault((check.name, check.kind), []).append((None, check))
    for c in analysis.comparisons:
        for check in c.checks:
            gathered.setdefault((check.name, check.kind), []).append((c, check))
    twice = {name for name, n in Counter(name for name, _ in gathered).items() if n > 1}
    everywhere = list(dict.fromkeys(c.point for c in analysis.comparisons))
    lines = [
        replace(_line(name, kind, [(_place(c), check) for c, check in entries]), which=_which(entries, everywhere) if name in twice else "")
        for (name, kind), entries in gathered.items()
    ]
    lines.sort(key=lambda line: _ORDER[line.state])
    counts = {state: sum(line.state == state for line in lines) for state in _ORDER}
    worst = [line.sentences[0] for line in lines if line.state in ("failed", "warning")]
    return Integrity(
        n=len(lines),
        n_passed=counts["passed"],
        n_failed=counts["failed"],
        n_warnings=counts["warning"],
        n_unchecked=counts["not checked"],
        headline=(worst[0] + (f"; and {len(worst) - 1} more" if len(worst) > 1 else "")) if worst else "",
        lines=lines,
    )


def _place(c: ComparisonResult | None) -> str:
    return f"{c.arm}, {c.point}" if c else ""


def _which(entries: Sequence[tuple[ComparisonResult | None, Check]], everywhere: Sequence[str]) -> str:
    """``draft-3, draft-8 at count/c1/ctx0/t0; ngram at all work``: arms that share their points together."""
    points: dict[str, list[str]] = {}
    for c, _ in entries:
        if c is not None:
            points.setdefault(c.arm, []).append(c.point)
    arms: dict[tuple[str, ...], list[str]] = {}
    for arm, at in points.items():
        arms.setdefault(tuple(at), []).append(arm)
    return "; ".join(f"{', '.join(names)} at {'all work' if len(at) == len(everywhere) else ', '.join(at)}" for at, names in arms.items())


def state_of(check: Check) -> str:
    """passed, failed (a hard check), warning (a soft one) or not checked."""
    if check.state == "not checked":
        return "not checked"
    if check.passed:
        return "passed"
    return "failed" if check.kind == "hard" else "warning"


def _line(name: str, kind: str, entries: list[tuple[str, Check]]) -> CheckLine:
    state = min((state_of(check) for _, check in entries), key=_ORDER.__getitem__)
    told = [(where, check) for where, check in entries if state_of(check) == state]
    said: dict[str, list[str]] = {}
    for where, check in told:
        said.setdefault(check.sentence, []).append(where)
    sentences = [f"{s} ({_places(at)})" if at[0] and state in ("failed", "warning") else s for s, at in said.items()]
    return CheckLine(
        name=name,
        kind=kind,
        state=state,
        sentences=sentences[:12],
        n=len(entries),
        n_failed=sum(state_of(check) in ("failed", "warning") for _, check in entries),
        evidence=[(key, _shown(value)) for _, check in told[:1] for key, value in check.evidence.items() if state in ("failed", "warning")],
    )


def _places(at: list[str]) -> str:
    """Where one sentence holds: the comparison, or how many."""
    return at[0] if len(at) == 1 else f"{len(at)} comparisons"


def _shown(value: object) -> str:
    """Evidence for people: of a mapping or a list what is in it, without a program's brackets and quotes."""
    match value:
        case dict():
            return "; ".join(
                f"{key} ({_shown(held)})" if isinstance(held, dict) else f"{key} {_shown(held)}" for key, held in value.items()
            )
        case list() | tuple():
            return ", ".join(map(_shown, value))
        case True:
            return "yes"
        case False:
            return "no"
        case None:
            return "unknown"
        case float():
            return f"{value:.4g}"
    return str(value)
