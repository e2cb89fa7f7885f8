"""An experiment's verdicts as an exit code: what was expected of which arm at which work, and whether it holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from speccore.measurement import Withheld
from speccore.spec import ExperimentSpec

from .errors import BadInput
from .models import Comparison, ExperimentWhole, Job, Ratio

OK, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130
#: Of what was measured. Where several hold, the largest that is told first counts: not measured, invalid, otherwise, inconclusive.
OTHERWISE, INCONCLUSIVE, INVALID, NOT_MEASURED, TIMED_OUT = 10, 11, 12, 13, 14
_WEIGHT = (NOT_MEASURED, INVALID, OTHERWISE, INCONCLUSIVE, OK)
EVERY = "*"


class Wanted(StrEnum):
    KEEP = "keep"
    NO_REGRESSION = "no-regression"
    ANY = "any"


@dataclass(frozen=True)
class Expectation:
    """``arm`` empty: the best one at each work; ``*``: each. ``work`` empty: each; else a workload or the name of a point."""

    wanted: Wanted
    arm: str = ""
    work: str = ""

    def __str__(self) -> str:
        place = f"{self.arm}{'@' if self.work else ''}{self.work}"
        return f"{place}={self.wanted}" if place else str(self.wanted)

    def is_at(self, workload: str, point: str) -> bool:
        return self.work in ("", point, workload, workload.partition("@")[0])


@dataclass(frozen=True)
class Finding:
    """Of one expectation at one comparison; ``arm`` is empty where no arm was compared."""

    expected: str
    code: int
    arm: str
    point: str
    host: str
    words: str


def expectation(text: str) -> Expectation:
    """``keep``, ``draft-4=keep``, ``draft-4@count=no-regression``, ``@count=any``, ``*=keep``. Raises :class:`BadInput`."""
    place, _, word = text.rpartition("=")
    arm, _, work = place.partition("@")
    try:
        return Expectation(Wanted(word.strip()), arm.strip(), work.strip())
    except ValueError:
        remedy = "Write keep, no-regression or any; or ARM=…, ARM@WORK=…, @WORK=…, *=…"
        raise BadInput(f"--expect: {word.strip()[:40]!r} is nothing to expect", remedy=remedy) from None


def refuse_unknown(expectations: Sequence[Expectation], spec: ExperimentSpec) -> None:
    """Raises :class:`BadInput` for an arm or work that the experiment hasn't, before it costs time."""
    arms = [a.name for a in spec.arms if a.mode != "off"]
    works = [(p.workload, p.key) for p in spec.points]
    for e in expectations:
        if e.arm not in ("", EVERY, *arms):
            raise BadInput(
                f"--expect {e}: the experiment has no arm {e.arm!r} that speculates", remedy=f"There is {', '.join(arms) or 'none'}."
            )
        if not any(e.is_at(workload, key) for workload, key in works):
            names = ", ".join(dict.fromkeys(w for w, _ in works))
            raise BadInput(f"--expect {e}: the experiment has no work {e.work!r}", remedy=f"There is {names}.")


def findings(experiment: ExperimentWhole, expectations: Sequence[Expectation]) -> list[Finding]:
    """One for each job that was not measured, then one for each expectation at each comparison that it names."""
    jobs = experiment.current_jobs
    measured = {name for j in jobs if j.is_measured for name in (j.id, j.extends) if name}
    missing = [j for j in jobs if not measured & {j.id, j.extends}]
    found = [Finding("measured", NOT_MEASURED, "", "", j.host or "", _fate(j)) for j in missing]
    compared = [c for c in experiment.comparisons if c.mode != "off" and c.job in measured]
    for e in expectations if measured else ():
        named = [c for c in compared if e.is_at(c.workload, c.point)]
        named = _best(named) if not e.arm else [c for c in named if e.arm in (EVERY, c.arm)]
        for c in named:
            code, words = _judged(c, e.wanted, experiment.margin)
            found.append(Finding(str(e), code, c.arm, c.point, c.host or "", words))
        if not named:
            found.append(Finding(str(e), INVALID, "", "", "", "no arm that it names was compared"))
    return found


def exit_code(found: Sequence[Finding]) -> int:
    return min((f.code for f in found), key=_WEIGHT.index, default=OK)


def _fate(job: Job) -> str:
    if not job.is_final:
        return f"the job is {job.state}"
    return f"the job {'was cancelled' if job.state == 'cancelled' else 'failed'}: {(job.error or {}).get('message') or job.reason or 'no reason is told'}"


def _best(compared: Sequence[Comparison]) -> list[Comparison]:
    """At each point of each job the arm that its page recommends, else the one that comes nearest to it."""
    places: dict[tuple[str, str], list[Comparison]] = {}
    for c in compared:
        places.setdefault((c.job, c.point), []).append(c)
    return [max(of, key=_standing) for of in places.values()]


def _standing(c: Comparison) -> tuple[bool, bool, bool, float]:
    low = c.speedup.low if isinstance(c.speedup, Ratio) and c.speedup.low is not None else 0.0
    return c.recommended, c.verdict.word == "keep", c.verdict.word not in ("invalid", "not engaged"), low


def _judged(c: Comparison, wanted: Wanted, margin: float) -> tuple[int, str]:
    """``no-regression``: not slower than the baseline by more than the margin, by the whole interval, and nothing required was lost."""
    word, reason = c.verdict.word, c.verdict.reason
    words = f"{word}{f' · {reason}' if reason else ''}: {c.verdict.sentence}"
    if word in ("invalid", "not engaged"):
        return INVALID, words
    if wanted is Wanted.ANY or (wanted is Wanted.KEEP and word == "keep"):
        return OK, words
    if wanted is Wanted.KEEP:
        return (INCONCLUSIVE if word == "inconclusive" else OTHERWISE), words
    if word == "disable" and reason not in ("slower", "not worth it"):
        return OTHERWISE, words
    if isinstance(c.speedup, Withheld) or c.speedup.low is None or c.speedup.high is None:
        return INCONCLUSIVE, words
    least = 1 / (1 + margin)
    if c.speedup.low > least:
        return OK, words
    return (OTHERWISE if c.speedup.high < least or reason == "slower" else INCONCLUSIVE), words
