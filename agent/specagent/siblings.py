"""What earlier runs beside a run's folder tell of this machine: its noise floor, what comparisons varied by, what starts cost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from speccore.estimate import TrialCost
from speccore.inventory import HostInventory
from speccore.measurement import JobAnalysis, Variation, Withheld
from speccore.noise_floor import Contrast, HostFloor, KnownFloor, Scope, contrast, host_floor, of_job, point_class
from speccore.proposals import Earlier
from speccore.protocol import AttemptReport, JobOffer
from speccore.selfrun import ANALYSIS, INVENTORY, JOB, RUN, RunIndex

log = logging.getLogger(__name__)
#: Folders that are looked at, the newest of them: more would take a while, and the old ones don't count.
MOST = 100
Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True)
class Sibling:
    """A run that has ended, with what was compared."""

    folder: Path
    index: RunIndex
    offer: JobOffer
    inventory: HostInventory
    analysis: JobAnalysis


def siblings(place: Path, inventory: HostInventory, *, without: Path | None = None) -> Iterator[Sibling]:
    """The completed runs of this machine in a folder. What can't be read is passed over: it may be of another version."""
    folders = [f.parent for f in place.glob(f"*/{RUN}") if without is None or f.parent.resolve() != without.resolve()]
    for folder in sorted(folders, key=lambda f: (f / RUN).stat().st_mtime, reverse=True)[:MOST]:
        try:
            index, there = _read(folder / RUN, RunIndex), _read(folder / INVENTORY, HostInventory)
            if index.outcome == "completed" and _machine(there) == _machine(inventory):
                yield Sibling(folder, index, _read(folder / JOB, JobOffer), there, _read(folder / ANALYSIS, JobAnalysis))
        except (OSError, ValidationError) as error:
            log.info("the run in %s is passed over: %s", folder, error)


def _read(path: Path, kind: type[Document]) -> Document:
    return kind.model_validate_json(path.read_bytes())


def _machine(inventory: HostInventory) -> str:
    return " ".join([inventory.hostname, *(d.uuid for d in inventory.devices)])


def floors(place: Path, offer: JobOffer, inventory: HostInventory, n_blocks: int, now: datetime, *, without: Path) -> dict[str, KnownFloor]:
    """As the server's: what is known of the floor at each class of a job's points, from the other runs beside it."""
    contrasts = [c for s in siblings(place, inventory, without=without) for c in _contrasts(s)]
    scope = Scope(_machine(inventory), inventory.driver(), offer.runtime_hash, "", n_blocks)

    def found(of: str, n: int) -> HostFloor | Withheld:
        return host_floor(contrasts, replace(scope, point_class=of, n_blocks=n), now)

    classes = dict.fromkeys(map(point_class, offer.spec.points))
    return {c: of_job(partial(found, c), n_blocks, offer.spec.blocks) for c in classes}


def _contrasts(s: Sibling) -> Iterator[Contrast]:
    spec = s.offer.spec
    controls = {a.name for a in spec.arms if a.is_repeat}
    for kind in dict.fromkeys(map(point_class, spec.points)):
        own = [c for c in s.analysis.comparisons if c.arm in controls and point_class(spec.point(c.point)) == kind]
        # Two servers that stand differ by the same from run to run, which no contrast of theirs would show.
        if not own or any(c.verdict.word == "invalid" or c.not_restarted for c in own):
            continue
        whole = set.intersection(*(set(c.block_values) for c in own))
        scope = Scope(_machine(s.inventory), s.inventory.driver(), s.offer.runtime_hash, kind, len(whole))
        found = contrast(s.offer.job_id, s.index.ended_at, scope, [c.block_values for c in own])
        if isinstance(found, Contrast):
            yield found


def earlier(s: Sibling, target_hash: str) -> list[Earlier]:
    """What the comparisons of a run of the same target varied by."""
    spec = s.offer.spec
    if s.offer.target_hash != target_hash:
        return []
    return [
        Earlier(spec.runtime.engine, spec.arm(c.arm), spec.point(c.point), c.variation)
        for c in s.analysis.comparisons
        if isinstance(c.variation, Variation) and c.verdict.word != "invalid"
    ]


def costs(s: Sibling, target_hash: str) -> list[TrialCost]:
    """What the good trials of a run of the same target took."""
    if s.offer.target_hash != target_hash:
        return []
    points = {p.key: p for p in s.offer.spec.points}
    trials = {t.id: t for t in s.offer.plan.trials}
    found = []
    for path in s.folder.glob("attempts/*/report.json"):
        report = _read(path, AttemptReport)
        took = report.durations_s
        if report.outcome != "ok" or report.trial not in trials or not {"start", "warmup", "probe"} <= took.keys():
            continue
        trial = trials[report.trial]
        asked = [points[key] for key in (*(w.point for w in trial.warmup), *(p.point for p in trial.probes))]
        tokens = sum(p.max_tokens / p.concurrency for p in asked)
        asked_s = took["warmup"] + took["probe"]
        whole = (report.ended_at - report.started_at).total_seconds()
        rest = max(0.0, whole - took["start"] - asked_s - took.get("look", 0.0) - took.get("sampling", 0.0))
        found.append(TrialCost(s.offer.spec.arm(trial.arm).mode, took["start"], asked_s / tokens, rest))
    return found
