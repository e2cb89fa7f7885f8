"""An answered job as a Markdown report for an issue or a pull request. :func:`report_of` alone reads the database."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from speccore import report
from speccore.inventory import HostInventory, ModelInfo
from speccore.markdown import Part, code, fenced, folded, joined, table_row, text
from speccore.measurement import JobAnalysis
from speccore.yamltext import data_to_yaml

from specweb.experiments.models import Experiment, Job, Origin, Visibility
from specweb.experiments.services.reproducing import reproduction_of
from specweb.results import page_queries
from specweb.results.report_queries import EvidenceHash, evidence_hashes

#: Attempts whose records' hashes are listed; the digest is over all files of all of them.
_MOST_HASHES = 40
_RECORDS = "records.jsonl"


#: What is said of an experiment that this service did not run.
_OWN: dict[str, str] = {
    Origin.SELF_RUN: " Self-run: measured without the service and uploaded afterwards.",
    Origin.IMPORTED: " Imported: measured on another server, computed anew from its evidence.",
}


def report_of(found: Experiment, job: Job, *, permalink: str, reproduce: str) -> str | None:
    """None before there is an answer. ``permalink``: the job's page; ``reproduce``: where a form with its experiment is."""
    analysis = page_queries.newest_analysis(job)
    if analysis is None:
        return None
    inventory, files, again = page_queries.frozen_inventory(job), evidence_hashes(job), reproduction_of(job)
    return markdown(found, job, analysis, inventory, files, again, permalink=permalink, reproduce=reproduce)


def markdown(
    found: Experiment,
    job: Job,
    analysis: JobAnalysis,
    inventory: HostInventory | None,
    files: Sequence[EvidenceHash],
    again: Mapping[str, Any],
    *,
    permalink: str,
    reproduce: str,
) -> str:
    """``again``: the spec that asks the same anew; ``reproduce``: where a form with it is."""
    ran = _ran(found, job, analysis, inventory)
    link = Part("permalink", [_link(found, permalink)])
    head, *rest = report.parts(ran, analysis)
    parts = [head, link, *rest, _again(again, reproduce, attached=ran.spec.runtime.attached), _evidence(files)]
    return joined(parts, f"All of it: {permalink}")


def _ran(found: Experiment, job: Job, analysis: JobAnalysis, inventory: HostInventory | None) -> report.Ran:
    models: dict[str, ModelInfo] = {m.manifest_hash: m for m in inventory.models} if inventory else {}
    ran_with = job.runtime.manifest_hash if job.runtime else ""
    ended = job.completed_at or job.processed_at
    return report.Ran(
        spec=found.parsed_spec,
        inventory=inventory,
        runtime=next((r for r in inventory.runtimes if r.manifest_hash == ran_with), None) if inventory else None,
        target=models.get(job.target.manifest_hash) if job.target else None,
        drafts=[models[digest] for digest in dict.fromkeys(job.draft_hashes.values()) if digest in models],
        commands=job.commands,
        n_blocks=max((len(c.block_values) for c in analysis.comparisons), default=0),
        took_s=(ended - job.running_at).total_seconds() if ended and job.running_at and found.origin == Origin.SERVICE else None,
        decided=job.decided,
    )


def _link(found: Experiment, permalink: str) -> str:
    whom = "" if found.visibility == Visibility.PUBLIC else " (for who may read it: the experiment is not public)"
    own = _OWN.get(found.origin, "")
    return f"All numbers with their raw files: <{permalink}>{whom}.{own}"


def _again(spec: Mapping[str, Any], reproduce: str, *, attached: bool) -> Part:
    named = "name one server for each arm in the agent’s configuration under `servers`" if attached else "the models are named by hash"
    body = (
        f"[Ask the same on another host]({reproduce}), or save this as `experiment.yaml` and `specweb-agent run experiment.yaml`; {named}. "
        f"Prompts of a team’s own don’t come with the agent.\n\n{fenced(data_to_yaml(dict(spec)), 'yaml')}"
    )
    return Part("how to repeat it", [body], rank=3, around=folded("How to repeat it"))


def digest_of(files: Sequence[EvidenceHash]) -> str:
    """SHA-256 over the lines ``<sha256>  <trial>.<n>/<file>``, sorted, as ``sort | sha256sum`` makes it."""
    lines = sorted(f"{f.sha256}  {f.attempt}/{f.name}\n" for f in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _evidence(files: Sequence[EvidenceHash]) -> Part:
    attempts = dict.fromkeys(f.attempt for f in files)
    if not files:
        return Part("evidence", [])
    records = [f for f in files if f.name == _RECORDS]
    shown = records[:_MOST_HASHES]
    lines = [
        f"{len(files):,} raw files of the {len(attempts):,} attempts that count; SHA-256 over the sorted lines "
        f"`<sha256>  <attempt>/<file>` of all of them: {code(digest_of(files))}",
        "",
        table_row(("attempt", f"SHA-256 of its {text(_RECORDS)}")),
        table_row(("---", "---")),
        *(table_row((text(f.attempt), code(f.sha256))) for f in shown),
        *(["", f"… and {len(records) - len(shown):,} more attempts"] if len(records) > len(shown) else []),
    ]
    return Part("evidence", lines, rank=2, around=folded("Evidence"))
