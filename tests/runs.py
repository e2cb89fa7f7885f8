"""A run's folder as ``specweb-agent run`` leaves it, with made evidence of known speeds: for tests of the upload."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from speccore.canonical import sha256_of
from speccore.errors import EngineDied
from speccore.inventory import HostInventory
from speccore.plan import plan_job
from speccore.protocol import AttemptReport, JobOffer, TrialPlan
from speccore.selfrun import RunAttempt, RunIndex, document_hashes, whole_blocks
from speccore.spec import ExperimentSpec
from speccore.workload import Workload

from tests import evidence, worlds

Change = Callable[[Path], None]


def make_offer(spec: ExperimentSpec, held: HostInventory, workloads: dict[str, Workload]) -> JobOffer:
    return JobOffer(
        job_id=str(uuid.uuid4()),
        experiment_id="",
        lease=0,
        lease_token="",
        spec=spec,
        plan=plan_job(spec, workloads),
        runtime_hash=held.runtimes[0].manifest_hash,
        target_hash=held.models[0].manifest_hash,
        draft_hashes={a.name: held.models[1].manifest_hash for a in spec.arms if a.draft_model},
        device_uuids=[d.uuid for d in held.devices],
    )


def make_run(
    folder: Path,
    *,
    spec: ExperimentSpec | None = None,
    workloads: dict[str, Workload] | None = None,
    n_trials: int | None = None,
    failing: str = "",
    **index: Any,
) -> JobOffer:
    """Of ``n_trials`` (all); the first attempt at trial ``failing`` fails, its second is good."""
    spec, held = spec or worlds.spec(), worlds.inventory()
    workloads = workloads or {"tiny": worlds.workload()}
    offer = make_offer(spec, held, workloads)
    (folder / "attempts").mkdir(parents=True)
    documents = (offer.model_dump(mode="json"), held.model_dump(mode="json"), {n: w.model_dump(mode="json") for n, w in workloads.items()})
    for name, data in zip(("job.json", "inventory.json", "workloads.json"), documents):
        (folder / name).write_text(json.dumps(data))
    reports: list[AttemptReport] = []
    for trial in offer.plan.trials[:n_trials]:
        if trial.id == failing:
            error = EngineDied("the engine died").body()
            reports.append(_attempt(folder, offer, trial, 1, {"outcome": "failed", "error": error}))
            reports.append(_attempt(folder, offer, trial, 2, {}))
        else:
            reports.append(_attempt(folder, offer, trial, 1, {}))
    told = RunIndex(
        **{
            "job_id": offer.job_id,
            "outcome": "completed",
            "agent_version": "0.1.0",
            "started_at": evidence.NOW,
            "ended_at": evidence.NOW + timedelta(minutes=5),
            "n_blocks": whole_blocks(offer, reports),
            "documents": document_hashes(*documents),
            "attempts": [
                RunAttempt(attempt_id=r.attempt_id, trial=r.trial, n=r.n, sha256=sha256_of(r.model_dump(mode="json"))) for r in reports
            ],
            **index,
        }
    )
    (folder / "run.json").write_text(told.model_dump_json())
    return offer


def _attempt(folder: Path, offer: JobOffer, trial: TrialPlan, n: int, changes: dict[str, Any]) -> AttemptReport:
    attempt_id = str(uuid.uuid4())
    files = evidence.files_of(offer, trial, attempt_id)
    report = worlds.report(offer, trial.id, files, attempt_id=attempt_id, n=n, **changes)
    place = folder / "attempts" / f"{trial.id}.{n}"
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    (place / "report.json").write_text(report.model_dump_json())
    return report


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Changes a JSON file as somebody would who wants another result."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
