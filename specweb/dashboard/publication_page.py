"""What the page of a published version shows, from its frozen content alone: no table of ours is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from speccore.commandline import command_differences
from speccore.measurement import JobAnalysis
from speccore.spec import ExperimentSpec, read_stored_spec

from specweb.results.models import Publication

from . import comparison_table, formats, integrity_panel, strips

#: A job of a thousand trials has thousands of files; the JSON names them all.
FILES_SHOWN = 200


@dataclass(frozen=True)
class Tab:
    id: str
    name: str
    hardware: str
    current: bool


def page_of(row: Publication, wanted: str) -> dict[str, Any]:
    """The context of one job of the version: the one that the address names, or the first."""
    content, jobs = row.content, row.jobs
    job = next((j for j in jobs if j["job"] == wanted), jobs[0])
    spec, analysis = read_stored_spec(content["spec"]), JobAnalysis.model_validate(job["analysis"])
    titles: dict[str, str] = content["titles"]
    return {
        "content": content,
        "job": job,
        "tabs": [Tab(j["job"], j["host"], j["hardware"], j is job) for j in jobs] if len(jobs) > 1 else [],
        "spec": spec,
        "submitted_at": datetime.fromisoformat(content["submitted_at"]),
        "finished_at": datetime.fromisoformat(job["finished_at"]) if job["finished_at"] else None,
        "analysis": analysis,
        "strips": strips.strips(spec, analysis, titles, _nowhere),
        "integrity": integrity_panel.integrity(analysis),
        "columns": comparison_table.columns(),
        "speedup_definition": comparison_table.definition("speedup"),
        "groups": comparison_table.groups(spec, analysis, titles, _nowhere),
        "facts": _facts(job, content, spec),
        "commands": command_differences(spec, job["commands"]),
        "evidence": job["evidence"][:FILES_SHOWN],
        "n_evidence": len(job["evidence"]),
        "workloads": content["workloads"],
    }


def _nowhere(arm: str, point: str, metric: str) -> str:
    """A published number leads nowhere: what it was computed from may be computed otherwise by now. Its evidence stands below."""
    return ""


def _facts(job: dict[str, Any], content: dict[str, Any], spec: ExperimentSpec) -> list[tuple[str, str, str]]:
    """Name, words, code."""
    r = job["runtime"]
    facts = [("hardware", job["hardware"] or "not known", "")]
    if r:
        words = " · ".join(part for part in (f"{r['engine']} {r['version']}", r["backend"]) if part)
        facts.append(("runtime", words, formats.short_hash(r["manifest_hash"])))
    facts += [
        ("target", spec.target.model, formats.short_hash(job["target_hash"])),
        *((f"helper of {arm}", "", formats.short_hash(sha256)) for arm, sha256 in sorted(job["draft_hashes"].items())),
        ("context", f"{spec.engine.context:,} tokens per slot", ""),
        ("slots", str(spec.engine.slots), ""),
        ("seed", str(spec.seed), ""),
        ("margin", f"{100 * spec.margin:g} %", ""),
        ("experiment", "", formats.short_hash(content["spec_hash"])),
        ("analysis", f"version {job['analysis_version']}, parser {', '.join(map(str, job['parser_versions'])) or 'not known'}", ""),
    ]
    return facts
