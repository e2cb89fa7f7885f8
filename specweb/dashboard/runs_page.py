"""Runs of one question side by side: what each found, what differs between them, whether they agree, and how an answer changed.

No database access.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from speccore.agreeing import Agreement, Found, agreement
from speccore.extending import MOST_BLOCKS, FirstLooks, expected_half_width, joined_confidence
from speccore.formats import percent
from speccore.jobstate import FINAL, JobState
from speccore.measurement import JoinedPart
from speccore.sequential import percent_of
from speccore.spec import ExperimentSpec
from speccore.stats import MIN_BLOCKS

from specweb.experiments.models import Experiment, Job
from specweb.experiments.services.more import blocks_in_words
from specweb.results.listing import UNJUDGED
from specweb.results.models import Listing
from specweb.results.runs_queries import Version

from . import formats

#: Columns of a listing that may differ between runs of one question, as people call them.
_DIFFER = (("hardware", "hardware"), ("driver", "driver"), ("build", "build"), ("backend", "backend"), ("setup", "settings"))
#: Totals for which the width is told, as multiples of the blocks that there are.
_STEPS = (1.5, 2, 3, 4)


@dataclass(frozen=True)
class JobRow:
    """A job of the experiment. ``role`` says what it is to the others."""

    id: UUID
    href: str
    host: str
    role: str
    state: str
    blocks: str
    at: datetime | None
    stands: str  # alone, with which, or why not
    differs: list[str]


def job_rows(found: Experiment, jobs: Sequence[Job], parts: Mapping[UUID, list[JoinedPart]], base: str) -> list[JobRow]:
    rows = []
    for job in jobs:
        host = job.host or job.wanted_host
        said = _standing(job, parts)
        rows.append(
            JobRow(
                id=job.pk,
                href=f"{base}?job={job.pk}",
                host=host.name if host else "any host",
                role=_role(job),
                state=job.state,
                blocks=blocks_in_words(job),
                at=job.processed_at or job.ended_at or job.created_at,
                stands=said[0],
                differs=said[1],
            )
        )
    return rows


def _role(job: Job) -> str:
    if job.extends_id:
        return "tried again" if job.retry_of_id else "more blocks"
    return "tried again" if job.retry_of_id else "first"


def _standing(job: Job, parts: Mapping[UUID, list[JoinedPart]]) -> tuple[str, list[str]]:
    told = parts.get(job.pk, [])
    if not told:
        return "", []
    if any(p.job == str(job.pk) and not p.differs for p in told):
        n = sum(not p.differs for p in told)
        return (f"compared together, blocks of {n} jobs", []) if n > 1 else ("stands alone", [])
    return "stands alone: it ran with something else", [words for p in told for words in p.differs]


@dataclass(frozen=True)
class RunRow:
    """One finished ratio of a question."""

    run: str
    href: str
    here: bool
    ratio: str
    verdict: str
    reason: str
    n_blocks: int
    at: datetime
    differs: list[tuple[str, str]]  # name and value, where it is another than the first row's
    self_run: str  # the mark of who ran it; empty: this service
    same_pair: bool


@dataclass(frozen=True)
class Side:
    """An arm at a point, as every run found it."""

    arm: str
    mode: str
    title: str
    rows: list[RunRow]
    agreement: Agreement


def sides(found: Experiment, listed: Sequence[Listing], titles: Mapping[str, str]) -> list[Side]:
    """By question, runs of this experiment first. Ratios stand side by side and are never divided by each other."""
    own = sorted((x for x in listed if x.experiment_id == found.pk), key=lambda x: (x.comparison.point.position, x.comparison.arm.position))
    shown = []
    for key in dict.fromkeys(x.question_key for x in own):
        runs = [x for x in listed if x.question_key == key]
        runs.sort(key=lambda x: (x.experiment_id != found.pk, -x.measured_at.timestamp()))
        first = next(x for x in own if x.question_key == key)
        names = _names(runs)
        title = titles.get(first.comparison.point.key, first.title)
        rows = [_run(x, runs[0], names[x.pk], found) for x in runs]
        shown.append(Side(first.comparison.arm.name, first.mode, title, rows, agreement([_found(x, names[x.pk]) for x in runs])))
    return shown


def _names(runs: Sequence[Listing]) -> dict[UUID, str]:
    """Each run by its host, numbered from the oldest where a host ran more than once."""
    by_host: dict[str, list[Listing]] = {}
    for x in sorted(runs, key=lambda x: (x.measured_at, x.pk)):
        by_host.setdefault(x.host.name if x.host else "a host", []).append(x)
    return {x.pk: host if len(here) == 1 else f"{host}, run {i}" for host, here in by_host.items() for i, x in enumerate(here, start=1)}


def _found(x: Listing, name: str) -> Found:
    c = x.comparison
    return Found(name, c.speedup, c.ci_low, c.ci_high, c.verdict, judged=c.verdict not in UNJUDGED, n_blocks=c.n_blocks)


def _run(x: Listing, first: Listing, name: str, found: Experiment) -> RunRow:
    c = x.comparison
    differs = [(word, getattr(x, column) or "none") for column, word in _DIFFER if getattr(x, column) != getattr(first, column)]
    return RunRow(
        run=name,
        href=f"{reverse('experiment', args=[x.experiment_id])}?job={c.job_id}",
        here=x.experiment_id == found.pk,
        ratio=_ratio(c.speedup, c.ci_low, c.ci_high),
        verdict=c.verdict,
        reason=c.reason,
        n_blocks=c.n_blocks,
        at=x.measured_at,
        differs=differs,
        self_run=x.origin_mark,
        same_pair=bool(x.pair_key) and x.pair_key == first.pair_key,
    )


def _ratio(estimate: float | None, low: float | None, high: float | None) -> str:
    if estimate is None:
        return "withheld"
    return f"{estimate:.2f}× [{low:.2f}–{high:.2f}]" if low is not None and high is not None else f"{estimate:.2f}×, no interval"


@dataclass(frozen=True)
class Change:
    """A comparison and the one in its place. ``before_href`` leads to what the earlier one was computed from."""

    arm: str
    mode: str
    title: str
    before: str
    before_verdict: str
    before_href: str
    after: str
    after_verdict: str
    after_href: str
    why: str
    at: datetime


def changes(versions: Sequence[Version], titles: Mapping[str, str]) -> list[Change]:
    """Where a newer comparison says something else than the one it superseded, the newest first."""
    found = []
    for _, group in groupby(versions, key=lambda v: (v.point, v.arm, v.job)):
        for old, new in pairwise(group):
            if _told(old) != _told(new):
                found.append(_change(old, new, titles))
    return sorted(found, key=lambda c: c.at, reverse=True)


def _told(v: Version) -> tuple[Any, ...]:
    return v.speedup, v.low, v.high, v.n_blocks, v.verdict, v.reason


def _change(old: Version, new: Version, titles: Mapping[str, str]) -> Change:
    return Change(
        arm=new.arm,
        mode=new.mode,
        title=titles.get(new.point, new.point),
        before=f"{_ratio(old.speedup, old.low, old.high)} of {old.n_blocks} blocks",
        before_verdict=old.verdict,
        before_href=numbers_href(old.job, old.arm, old.point, old.analysis),
        after=f"{_ratio(new.speedup, new.low, new.high)} of {new.n_blocks} blocks",
        after_verdict=new.verdict,
        after_href=numbers_href(new.job, new.arm, new.point, new.analysis if new.superseded else None),
        why=_why(old, new),
        at=new.at,
    )


def numbers_href(job: UUID, arm: str, point: str, computed: int | None) -> str:
    """``computed``: the analysis to show in place of the newest."""
    asked = {"arm": arm, "point": point} | ({} if computed is None else {"computed": str(computed)})
    return f"{reverse('numbers', args=[job])}?{urlencode(asked)}"


def _why(old: Version, new: Version) -> str:
    added = len(new.block_values.keys() - old.block_values.keys())
    if added:
        words = f"{added} block{'' if added == 1 else 's'} added"
        return f"{words}, at {percent_of(new.joined['confidence'])} confidence" if new.joined else words
    if new.analysis_version != old.analysis_version:
        return f"computed again, by version {new.analysis_version} of the analysis in place of {old.analysis_version}"
    if new.block_values != old.block_values:
        return "evidence read again, by a newer parser"
    return "compared again, with what was known by then (a noise floor, a check)"


@dataclass(frozen=True)
class Width:
    """What so many blocks in all would make of the intervals, if blocks go on to vary as they did."""

    n_added: int
    n_blocks: int
    percent: str  # ± of the widest of the experiment's intervals
    confidence: str
    minutes: str


@dataclass(frozen=True)
class More:
    """``why_not``: why the button is missing, in words; the service tells what else stands against it."""

    job: UUID
    n_first: int
    widths: list[Width] = field(default_factory=list)
    now: str = ""
    most: int = 0
    why_not: str = ""
    rest: bool = False


def more(job: Job, jobs: Sequence[Job], versions: Sequence[Version], spec: ExperimentSpec, block_s: float | None) -> More:
    """What may be added to the answer that ``job`` is part of."""
    first = next((j for j in jobs if j.pk == (job.extends_id or job.pk)), job)
    family = [first, *(j for j in jobs if j.extends_id == first.pk)]
    used = max((b for j in family for b in (j.blocks or range(1, spec.blocks + 1))), default=0)
    n_first = _n_first(first, versions)
    why_not = _why_no_more(family)
    rest = not any(j.state not in FINAL for j in family) and any(j.state in (JobState.FAILED, JobState.CANCELLED) for j in family)
    here = [v for v in versions if v.job == first.pk and not v.superseded and v.low is not None and v.verdict not in UNJUDGED]
    looks = FirstLooks(spec.blocks, sequential=spec.sequential)
    totals = sorted({math.ceil(used * step) for step in _STEPS if used < used * step <= MOST_BLOCKS})
    widths = [w for n in totals if (w := _width(here, looks, n_first, n, n - used, block_s))]
    widest = max((math.log(v.high / v.low) / 2 for v in here if v.high and v.low), default=None)
    now = f"±{percent(math.expm1(widest))}" if widest is not None else ""
    return More(first.pk, n_first or used, widths, now, max(MOST_BLOCKS - used, 0), why_not, rest)


def _n_first(first: Job, versions: Sequence[Version]) -> int:
    """Blocks of the first answer that had an interval."""
    counts = [v.n_blocks for v in versions if v.job == first.pk and v.n_blocks >= MIN_BLOCKS]
    joined = [v.joined["n_first"] for v in versions if v.job == first.pk and v.joined and v.joined["n_first"]]
    return min([*counts, *joined], default=0)


def _why_no_more(family: Sequence[Job]) -> str:
    if running := next((j for j in family if j.state not in FINAL), None):
        return (
            f"Blocks are being added: the job of {blocks_in_words(running)} is {running.state}."
            if running is not family[0]
            else (f"The job is {running.state}: blocks can be added when it has ended.")
        )
    if not any(j.state == JobState.PROCESSED for j in family):
        return "No job of this answer is finished: run the missing blocks, or try again from the start."
    host = family[0].host
    if host is None or host.self_run:
        return "It was run without this service: submit the experiment here to add to it."
    return f"{host.name} was revoked: reproduce the experiment on another host." if host.revoked_at else ""


def _width(here: Sequence[Version], looks: FirstLooks, n_first: int, n: int, n_added: int, block_s: float | None) -> Width | None:
    halves = []
    for v in here:
        missing = n - n_added - len(v.block_values)  # blocks that brought no value to this arm
        half = expected_half_width(list(v.block_values.values()), looks, min(n_first, len(v.block_values)), n - max(missing, 0))
        if half is not None:
            halves.append((half, v))
    if not halves:
        return None
    half, _ = max(halves, key=lambda pair: pair[0])
    minutes = formats.duration(n_added * block_s) if block_s else ""
    return Width(n_added, n, f"±{percent(math.expm1(half))}", percent_of(joined_confidence(looks, n_first, n)), minutes)
