"""How things look in the people's API: plain JSON values; a withheld number is ``{"withheld": reason}``, never null or zero."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse
from pydantic import BaseModel
from speccore.measurement import ComparisonResult, Number, Withheld
from speccore.protocol import Running

from specweb.accounts.models import Membership, User
from specweb.experiments.models import Experiment, Host, Job, Runtime, Workload
from specweb.results.models import EvidenceFile


def address(name: str, *args: Any, **query: str) -> str:
    """The full address of a page or of a part of this API."""
    return settings.SPECWEB_BASE_URL + reverse(name, args=args) + (f"?{urlencode(query)}" if query else "")


def values(it: Any) -> Any:
    """A frozen dataclass as plain JSON values, and what it holds."""
    if isinstance(it, Withheld):
        return {"withheld": it.withheld}
    if isinstance(it, BaseModel):
        return it.model_dump(mode="json")
    if dataclasses.is_dataclass(it):
        return {f.name: values(getattr(it, f.name)) for f in dataclasses.fields(it)}
    return [values(v) for v in it] if isinstance(it, list | tuple) else it


def person(user: User, memberships: Sequence[Membership]) -> dict[str, Any]:
    teams = [{"slug": m.team.slug, "name": m.team.name, "role": m.role} for m in memberships]
    return {"user": user.get_username(), "teams": teams}


def experiment_line(e: Experiment) -> dict[str, Any]:
    """An experiment in a list, with its jobs in short."""
    return {
        "id": str(e.pk),
        "name": e.name,
        "question": e.question,
        "team": e.team.slug,
        "visibility": e.visibility,
        "origin": e.origin,
        "state": str(e.state),
        "created_at": e.created_at,
        "created_by": e.created_by.get_username() if e.created_by else None,
        "url": address("experiment", e.pk),
        "api_url": address("api-experiment", e.pk),
        "jobs": [job_line(j, for_team=j.for_team) for j in e.jobs.all()],
    }


def job_line(job: Job, *, for_team: bool) -> dict[str, Any]:
    host = job.host or job.wanted_host
    return {
        "id": str(job.pk),
        "host": host.name if host else None,
        "state": job.state,
        "paused": job.is_paused,
        "cancelling": job.cancel_requested_at is not None and not job.is_final,
        "reason": job.reason_for(team=for_team),
        "retry_of": str(job.retry_of_id) if job.retry_of_id else None,
        "extends": str(job.extends_id) if job.extends_id else None,
        "blocks": job.blocks,
    }


def job_whole(job: Job, counted: tuple[int, int], *, for_team: bool) -> dict[str, Any]:
    """A job of an experiment that is looked at: how far it is, what it runs with, and where its evidence is."""
    n_trials, n_done = counted
    return job_line(job, for_team=for_team) | {
        "error": job.error_for(team=for_team),
        "hardware": job.inventory.hardware if job.inventory else None,
        "runtime": runtime(job.runtime) if job.runtime else None,
        "target_hash": job.target.manifest_hash if job.target else None,
        "draft_hashes": job.draft_hashes,
        "n_trials": n_trials,
        "n_trials_done": n_done,
        "decided": job.decided,
        "progress": progress(job, for_team=for_team),
        "created_at": job.created_at,
        "running_at": job.running_at,
        "ended_at": job.processed_at or job.ended_at,
        "url": address("experiment", job.experiment_id, job=str(job.pk)),
        "evidence_url": address("api-evidence-list", job.pk),
    }


def progress(job: Job, *, for_team: bool) -> dict[str, Any] | None:
    """What the agent said last while it works. The engine's log and the host's troubles are for the team."""
    if not job.progress:
        return None
    told = Running.model_validate(job.progress).model_dump(mode="json", exclude={"lease"})
    return told if for_team else {k: v for k, v in told.items() if k not in ("log_tail", "note")}


def runtime(r: Runtime) -> dict[str, Any]:
    parts = ("engine", "version", "source_commit", "backend", "manifest_hash")
    return {name: getattr(r, name) or None for name in parts}


def comparison(job: Job, c: ComparisonResult) -> dict[str, Any]:
    """Arm against baseline: every metric as its plain value or with the reason why it is withheld, and the page with their sources."""
    told = {name: _plain(getattr(c, name)) for name in ComparisonResult.model_fields}
    told |= {name: {"withheld": why} for name, why in _UNKNOWN.items() if told[name] is None}
    host = job.host.name if job.host else None
    return {"job": str(job.pk), "host": host, **told, "url": address("numbers", job.pk, arm=c.arm, point=c.point)}


#: Numbers of a comparison that its record leaves empty, with the reason.
_UNKNOWN = {
    "noise_floor": "this host's noise floor is unknown; the verdict takes it as 0",
    "p_holm": "there is no interval to adjust",
}


def _plain(value: Any) -> Any:
    """A number without its source (the page has it), a withheld one with its reason alone."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, Withheld):
        return {"withheld": value.withheld}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def evidence(file: EvidenceFile, *, for_team: bool) -> dict[str, Any]:
    """A file of an attempt. Prompts and answers are for the team: others see that the file is there, and its hash."""
    attempt = file.attempt
    readable = for_team or not file.private
    return {
        "trial": attempt.trial.plan_id,
        "arm": attempt.trial.arm.name,
        "block": attempt.trial.block,
        "attempt": str(attempt.pk),
        "accepted": attempt.accepted,
        "file": file.name,
        "kind": file.kind,
        "private": file.private,
        "sha256": file.blob.sha256,
        "bytes": file.blob.bytes,
        "url": address("api-evidence", attempt.pk, file.name) if readable else None,
    }


def host_line(host: Host, state: str) -> dict[str, Any]:
    """A host with what it offers; ``models`` and ``runtimes`` are empty until its agent has told."""
    offered = host.inventory.parsed if host.inventory else None
    return {
        "id": str(host.pk),
        "name": host.name,
        "team": host.team.slug,
        "state": state,
        "draining": host.takes_no_jobs,
        "labels": host.labels,
        "hardware": host.inventory.hardware if host.inventory else None,
        "last_seen_at": host.last_seen_at,
        "agent_version": host.agent_version or None,
        "problem": host.problem,
        "models": [
            m.model_dump(
                mode="json", include={"alias", "manifest_hash", "size_bytes", "architecture", "quantization", "context_length", "has_mtp"}
            )
            for m in (offered.models if offered else [])
        ],
        "runtimes": [
            r.model_dump(mode="json", include={"engine", "version", "source_commit", "backend", "manifest_hash"})
            for r in (offered.runtimes if offered else [])
        ],
        "url": address("host", host.pk),
    }


def workload(w: Workload, n_items: int) -> dict[str, Any]:
    return {
        "id": w.pk,
        "name": w.name,
        "version": w.version,
        "ref": str(w),
        "title": w.title,
        "team": w.team.slug if w.team else None,
        "n_items": n_items,
        "content_hash": w.content_hash,
        "private": w.private,
        "archived_at": w.archived_at,
        "url": address("workload", w.pk),
    }
