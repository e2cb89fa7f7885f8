"""Publishing: an experiment's numbers as they are now become a version that nothing changes any more."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max
from speccore.errors import NotPossible, SpecError

from specweb.accounts import audit
from specweb.accounts.models import User
from specweb.experiments.models import Experiment, Job
from specweb.experiments.services.sharing import refuse_unless_shares
from specweb.experiments.text import storable
from specweb.results.models import Analysis, Attempt, EvidenceFile, Publication, Withdrawal

FORMAT = 1
MOST_REASON = 1_000


class ReasonMissing(SpecError):
    code = "reason_missing"


def publish(experiment: Experiment, by: User, *, now: datetime, reason: str = "", hosts: bool = False, people: bool = False) -> Publication:
    """The next version, with ``hosts`` under their names and with the names of ``people``. Else it names hardware only.

    Raises :class:`NotAllowed`; :class:`NotPossible` without a finished analysis; :class:`ReasonMissing` for a correction
    that doesn't say what it corrects.
    """
    with transaction.atomic():
        row = Experiment.objects.select_for_update(of=("self",), no_key=True).select_related("team", "created_by").get(pk=experiment.pk)
        refuse_unless_shares(by, row)
        version = 1 + (row.publications.aggregate(last=Max("version"))["last"] or 0)
        reason = _reason(reason) if version > 1 else " ".join(reason.split())[:MOST_REASON]
        content = _frozen(row, hosts=hosts, people=people)
        made = Publication.objects.create(
            experiment=row,
            version=version,
            reason=storable(reason),
            published_by=by.get_username() if people else "",
            published_at=now,
            content=content,
            content_hash=hash_of_content(content),
        )
        shown = [word for word, on in (("host names", hosts), ("names of people", people)) if on]
        after = f"v{version}, with {' and '.join(shown)}" if shown else f"v{version}, without names of hosts and people"
        audit.record("experiment.publish", row.pk, row.name_to_maintainers, team=row.team, by=by, after=after, reason=reason)
    return made


def withdraw(publication: Publication, by: User, *, now: datetime, reason: str) -> bool:
    """Takes a version from view and leaves the reason in its place. False if that was done before.

    Raises :class:`NotAllowed` or :class:`ReasonMissing`.
    """
    reason = _reason(reason)
    with transaction.atomic():
        row = Experiment.objects.select_for_update(of=("self",), no_key=True).select_related("team").get(pk=publication.experiment_id)
        refuse_unless_shares(by, row)
        if Withdrawal.objects.filter(publication=publication).exists():
            return False
        Withdrawal.objects.create(publication=publication, reason=storable(reason), withdrawn_by=by.get_username(), withdrawn_at=now)
        told = {"before": f"v{publication.version} shown", "after": f"v{publication.version} withdrawn", "reason": reason}
        audit.record("experiment.withdraw", row.pk, row.name_to_maintainers, team=row.team, by=by, **told)
    return True


def hash_of_content(content: Any) -> str:
    """SHA-256 of canonical JSON: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(canonical(content)).hexdigest()


def canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _reason(text: str) -> str:
    text = " ".join(text.replace("\x00", "").split())
    if not text:
        raise ReasonMissing("reason is empty", remedy="Say in a sentence what was wrong: whoever has the link reads it.", field="reason")
    if len(text) > MOST_REASON:
        raise ReasonMissing(f"reason has {len(text):,} characters", remedy=f"At most {MOST_REASON:,} are kept.", field="reason")
    return text


def _frozen(row: Experiment, *, hosts: bool, people: bool) -> dict[str, Any]:
    jobs = [
        (job, analysis)
        for job in row.jobs.filter(retry=None).select_related("host", "runtime", "target", "inventory").order_by("id")
        if (analysis := Analysis.objects.filter(job=job).order_by("-id").first()) is not None
    ]
    if not jobs:
        raise NotPossible("the experiment has no numbers yet", remedy="Publish it when a job of it is done and compared.")
    jobs = _answers(jobs)
    points = list(row.points.select_related("workload").defer("workload__content"))
    spec = dict(row.spec)
    names = [job.host.name for job, _ in jobs if job.host]
    numbers = {host: i for i, host in enumerate(dict.fromkeys(job.host_id for job, _ in jobs), start=1)}
    if not hosts:
        spec.pop("placement", None)
    content = {
        "format": FORMAT,
        "experiment": str(row.pk),
        "name": row.name,
        "question": row.question,
        "team": row.team.name,
        "origin": row.origin,
        "submitted_at": row.created_at.isoformat(),
        "submitted_by": row.created_by.get_username() if people and row.created_by else "",
        "spec": spec,
        "spec_hash": row.spec_hash,
        "titles": {p.key: p.workload.name if p.workload.private else p.workload.title for p in points},
        "workloads": _workloads(points),
        "jobs": [_job(job, analysis, numbers[job.host_id], named=hosts) for job, analysis in jobs],
    }
    frozen = content if hosts else _without(content, names)
    return json.loads(canonical(storable(frozen)))  # type: ignore[no-any-return]


def _workloads(points: list[Any]) -> list[dict[str, Any]]:
    """Of one that isn't built in: its name, version and hash; its prompts never."""
    found = {p.workload.pk: p.workload for p in points}
    return [{"workload": str(w), "hash": w.content_hash, "built_in": w.team_id is None} for w in sorted(found.values(), key=str)]


def _joined(job: Job, analysis: Analysis) -> list[str]:
    """The jobs whose blocks stand in an analysis, the one that the answer began with first; itself alone where none were added."""
    return [p.job for p in analysis.parsed.parts if not p.differs] or [str(job.pk)]


def _answers(jobs: list[tuple[Job, Analysis]]) -> list[tuple[Job, Analysis]]:
    """Without the jobs that added blocks to another one's answer: that one has their numbers and their evidence."""
    there = {str(job.pk) for job, _ in jobs}
    return [
        (job, analysis)
        for job, analysis in jobs
        if str(job.pk) not in (joined := _joined(job, analysis)) or joined[0] == str(job.pk) or joined[0] not in there
    ]


def _job(job: Job, analysis: Analysis, i: int, *, named: bool) -> dict[str, Any]:
    """``i``: the number of its host."""
    r, joined = job.runtime, {str(job.pk), *_joined(job, analysis)}
    parsers = Attempt.objects.filter(trial__job__in=joined, accepted=True).exclude(measurement=None)
    return {
        "job": str(job.pk),
        "host": job.host.name if named and job.host else f"host {i}",
        "hardware": job.inventory.hardware if job.inventory else "",
        "runtime": {n: getattr(r, n) for n in ("engine", "version", "source_commit", "backend", "manifest_hash")} if r else None,
        "target_hash": job.target.manifest_hash if job.target else "",
        "draft_hashes": job.draft_hashes,
        "commands": job.commands,
        "finished_at": job.processed_at.isoformat() if job.processed_at else "",
        "parser_versions": sorted(set(parsers.values_list("measurement__parser_version", flat=True))),
        "analysis_version": analysis.analysis_version,
        "analysis": analysis.numbers,
        "evidence": _evidence(joined),
    }


def _evidence(jobs: Collection[str]) -> list[dict[str, Any]]:
    """Every file of every attempt by its hash, also of those that a public reader may not open."""
    order = ("attempt__trial__job", "attempt__trial__index", "attempt__n", "name")
    rows = EvidenceFile.objects.filter(attempt__trial__job__in=jobs).order_by(*order)
    names = ("attempt_id", "attempt__trial__plan_id", "attempt__accepted", "name", "kind", "blob_id", "blob__bytes", "private")
    keys = ("attempt", "trial", "counted", "file", "kind", "sha256", "bytes", "private")
    return [dict(zip(keys, (str(v[0]), *v[1:]), strict=True)) for v in rows.values_list(*names)]


#: Words of people or of programs, in which the name of a host may stand; all else are figures, keys and hashes.
_WORDS = {"sentence", "reason", "withheld", "next_step", "note", "message", "text", "words"}


def _without(content: Any, names: list[str], key: str = "") -> Any:
    """The same without the names of hosts in sentences, and without what a check noted of the machine beside its sentence."""
    if isinstance(content, dict):
        # The evidence of a check lists processes and devices; that of a job is the list of its files.
        return {k: {} if k == "evidence" and isinstance(v, dict) else _without(v, names, k) for k, v in content.items()}
    if isinstance(content, list):
        return [_without(v, names, key) for v in content]
    if isinstance(content, str) and key in _WORDS:
        for name in names:
            content = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "the host", content)
    return content
