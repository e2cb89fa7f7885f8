"""What a job asked, pinned to what it ran with, so that another host can be asked the same."""

from __future__ import annotations

from typing import Any

from speccore.reproduce import reproduction

from specweb.experiments.models import Job, Workload


def reproduction_of(job: Job) -> dict[str, Any]:
    """A spec's data; of a job that no host has taken yet it names what the experiment names (1 statement)."""
    spec = job.experiment.parsed_spec
    hashes: dict[str, str] = (job.plan or {}).get("workloads", {})
    rows = Workload.objects.filter(content_hash__in=hashes.values()).only("name", "version", "content_hash")
    refs = {(w.name, w.content_hash): str(w) for w in rows}
    named = {name: refs.get((name.partition("@")[0], sha256), name) for name, sha256 in hashes.items()}
    offered = job.inventory.parsed if job.inventory else None
    ran_with = job.runtime.manifest_hash if job.runtime else ""
    runtime = next((r for r in offered.runtimes if r.manifest_hash == ran_with), None) if offered else None
    return reproduction(
        spec,
        workloads=named,
        target_hash=job.target.manifest_hash if job.target else "",
        draft_hashes=job.draft_hashes,
        runtime=runtime,
    )
