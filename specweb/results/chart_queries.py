"""What the charts of Compare read, and the one rule by which rows may stand in one line of a chart."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F
from speccore import keys
from speccore.inventory import Device
from speccore.measurement import Number, Source, Withheld

from specweb.experiments.models import Job, Viewer

from .compare_queries import ORDER, ROW, Choices, narrowed
from .models import Attempt, Comparison, Listing

#: What a chart's axis may vary: the one part of the question in which the rows of a line differ.
DRAFT_LIMIT, CONCURRENCY, CONTEXT = "arm.draft_limit", "point.concurrency", "point.occupied_context"
#: So many rows of a view are read for its charts, in the order of its tables.
MOST_ROWS = 300
#: Of so many jobs the memory of their trials is read: each trial's measurement must be unpacked for it.
MOST_JOBS = 24
#: So many runs of a history are shown, the newest.
MOST_RUNS = 120
#: Figures that charts need beside those of a listing.
_FURTHER = ("break_even_tokens_per_pass",)


def line_key(shown: Listing, axis: str) -> tuple[Any, ...]:
    """Rows with one key may be joined by a line along ``axis``.

    They answer one question but for the part that the axis varies, on the same hardware, with the same build, backend, driver
    and settings, and were measured in the same way. Whatever else differs, they are two lines.
    """
    return keys.key_of(_without(shown.question, axis)), *(getattr(shown, name) for name in ROW)


def panel_key(shown: Listing, axis: str = "") -> str:
    """Rows with one key may stand beside each other in one panel: the same work, whoever drafts, on whatever hardware."""
    return keys.work_key(_without(shown.question, axis))


def _without(question: Mapping[str, Any], axis: str) -> dict[str, Any]:
    return {name: value for name, value in question.items() if name != axis}


@dataclass(frozen=True)
class ChartRow:
    """A row of the Compare page: the newest run that was judged stands for it. ``further``: figure → value, or why there is none."""

    shown: Listing
    further: Mapping[str, Number | Withheld]


@dataclass(frozen=True)
class Rows:
    rows: list[ChartRow]
    more: bool  # the view has more than were read


def rows(user: Viewer, choices: Choices, chosen: Mapping[str, str], most: int = MOST_ROWS) -> Rows:
    """The rows of a view, each by the run that stands for it (2 statements)."""
    found = list(
        narrowed(user, choices, chosen)
        .order_by(*ORDER, F("judged").desc(), F("measured_at").desc(), F("pk").desc())
        .distinct(*ORDER)
        .select_related("comparison__arm", "comparison__point", "experiment", "host")
        .defer("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec")[: most + 1]
    )
    shown = found[:most]
    further = _further([row.pk for row in shown])
    return Rows([ChartRow(row, further.get(row.pk, {})) for row in shown], len(found) > most)


def _further(comparisons: Sequence[UUID]) -> dict[UUID, dict[str, Number | Withheld]]:
    columns = [f"numbers__{name}" for name in _FURTHER]
    read = Comparison.objects.filter(pk__in=comparisons).values_list("pk", *columns)
    return {pk: {name: figure_of(value) for name, value in zip(_FURTHER, values, strict=True)} for pk, *values in read}


def figure_of(stored: Any) -> Number | Withheld:
    """A figure as it is stored; what an older analysis doesn't have is withheld."""
    if isinstance(stored, Mapping) and isinstance(stored.get("value"), int | float):
        return Number(value=stored["value"], source=Source(file=""))
    if isinstance(stored, Mapping) and stored.get("withheld"):
        return Withheld(withheld=str(stored["withheld"]), reason_code=str(stored.get("reason_code", "")))
    return Withheld(withheld="computed before this figure was defined", reason_code="defined_later")


#: Block → bytes on devices, and of host and devices together.
_ByBlock = dict[int, tuple[float | None, float | None]]


@dataclass(frozen=True)
class Memory:
    """What one arm took beside its baseline, bytes. ``device``: on the cards alone, else of the host and its devices together."""

    baseline_bytes: float
    growth_bytes: float
    card_bytes: int | None  # of all cards that the job used; None: the host has none, or its size is not told
    device: bool


def memory(comparisons: Sequence[Comparison]) -> dict[UUID, Memory | Withheld]:
    """Comparison → what its arm took at its point (3 statements), in all blocks that it rests on, also those of jobs that added some.

    Blocks are matched: the growth is the median of their differences.
    """
    jobs = list(dict.fromkeys(c.job_id for c in comparisons))[:MOST_JOBS]
    cards, parts = _cards(jobs), _parts([c.pk for c in comparisons if c.job_id in jobs])
    taken: dict[UUID, dict[tuple[str, str], _ByBlock]] = defaultdict(lambda: defaultdict(dict))
    read = Attempt.objects.filter(trial__job__in=list(parts), accepted=True, measurement__isnull=False).values_list(
        "trial__job_id",
        "trial__arm__name",
        "trial__arm__is_baseline",
        "trial__block",
        "trial__points",
        "measurement__numbers__peak_device_bytes__value",
        "measurement__numbers__peak_memory_bytes__value",
    )
    for job, arm, is_baseline, block, points, device, both in read:
        home, blocks = parts[job]
        if blocks is None or block in blocks:
            for point in points:
                taken[home]["" if is_baseline else arm, point][block] = (device, both)
    found = {}
    for c in comparisons:
        if c.job_id in jobs:
            sides = [taken[c.job_id].get((arm, c.point.key), {}) for arm in ("", c.arm.name)]
            found[c.pk] = _memory(sides[0], sides[1], cards.get(c.job_id))
    return found


def _parts(comparisons: Sequence[UUID]) -> dict[UUID, tuple[UUID, set[int] | None]]:
    """Job → the job that its blocks are compared with, and which of them count; None: all of a job that stands alone."""
    found: dict[UUID, tuple[UUID, set[int] | None]] = {}
    for home, told in Comparison.objects.filter(pk__in=comparisons).values_list("job_id", "analysis__numbers__parts"):
        found.setdefault(home, (home, None))
        for part in told or []:
            if not part.get("differs"):
                found[UUID(part["job"])] = (home, set(part["blocks"]))
    return found


def _cards(jobs: Iterable[UUID]) -> dict[UUID, int]:
    """Job → bytes of the cards that it used; jobs on the processor are left out."""
    found = {}
    for job, uuids, devices in Job.objects.filter(pk__in=list(jobs)).values_list("pk", "device_uuids", "inventory__content__devices"):
        parsed = [Device.model_validate(d) for d in devices or []]
        used = [d for d in parsed if d.uuid in uuids] or parsed
        cards = [d.memory_bytes for d in used if d.kind == "gpu"]
        if cards and all(cards):
            found[job] = sum(cards)
    return found


def _memory(baseline: _ByBlock, arm: _ByBlock, card: int | None) -> Memory | Withheld:
    for which in (0, 1):
        if which == 0 and card is None:
            continue
        base = {b: v[which] for b, v in baseline.items() if v[which] is not None}
        own = {b: v[which] for b, v in arm.items() if v[which] is not None}
        growth = [own[b] - base[b] for b in own if b in base]  # type: ignore[operator]
        if growth:
            return Memory(statistics.median(v for v in base.values() if v is not None), statistics.median(growth), card, which == 0)
    return Withheld(withheld="no block has the memory of both the arm and the baseline", reason_code="missing")


def history(user: Viewer, question_key: str, hardware: str, setup: str | None) -> tuple[list[Listing], bool]:
    """Runs of one question on one hardware, oldest first, never pooled; and whether there are older ones (1 statement).

    ``setup`` None: whatever the experiment set of how the engine sits on its host.
    """
    found = Listing.objects.visible_to(user).filter(question_key=question_key, hardware=hardware)
    if setup is not None:
        found = found.filter(setup=setup)
    newest = list(
        found.select_related("comparison__arm", "comparison__point", "experiment", "host")
        .defer("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec")
        .order_by("-measured_at", "-pk")[: MOST_RUNS + 1]
    )
    return newest[:MOST_RUNS][::-1], len(newest) > MOST_RUNS


def two_rows(user: Viewer, wanted: Sequence[UUID]) -> list[Listing]:
    """Those of the wanted comparisons that are current and visible, in the order of asking (1 statement)."""
    found = (
        Listing.objects.visible_to(user).filter(pk__in=wanted).select_related("comparison__arm", "comparison__point", "experiment", "host")
    )
    by_key = {row.pk: row for row in found.defer("comparison__numbers", "experiment__spec")}
    return [by_key[pk] for pk in wanted if pk in by_key]
