"""What the Compare page keeps of a comparison: its question, its hardware and its figures. No database access."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from speccore import keys
from speccore.inventory import HostInventory
from speccore.measurement import Check, ComparisonResult, Maybe, Number, Withheld
from speccore.spec import Arm, EngineSettings, ExperimentSpec

#: Figures of a comparison that the page shows: by the attribute's name.
FIGURES = ("arm_tokens_per_s", "baseline_tokens_per_s", "mean_acceptance_length", "tokens_per_target_pass", "memory_bill_bytes")
#: Settings that change how fast an engine is on its host, where an experiment sets them.
SETUP = ("slots", "threads", "gpu_layers", "batch", "ubatch", "flash_attention")
SETUP_OF_THE_ARM = ("draft_threads", "draft_gpu_layers", "draft_device")
#: Verdicts that judge no ratio, nor does one of a ratio without an interval.
UNJUDGED = ("invalid", "not engaged")


def values_of(
    spec: ExperimentSpec, job: Any, point: Any, alias: str, result: ComparisonResult, of_job: list[Check], measured_at: datetime
) -> dict[str, Any] | None:
    """Columns of a ``Listing``; None of an arm without speculation, which answers no question of the page.

    ``job`` with its runtime, target and inventory, ``point`` with its workload: rows, as models or as a migration sees them.
    ``alias``: what the job's host calls the target.
    """
    arm = spec.arm(result.arm)
    if arm.mode == "off":
        return None
    work, asked, runtime = point.workload, spec.point(point.key), job.runtime
    fields = keys.question_fields(
        target_hash=job.target.manifest_hash if job.target else f"named {spec.target.model}",
        engine=spec.runtime.engine,
        arm=arm,
        point=asked,
        workload_hash=work.content_hash,
        settings=spec.engine,
        draft_hash=job.draft_hashes.get(arm.name, ""),
    )
    used = used_devices(job.inventory.content, job.device_uuids) if job.inventory else None
    return {
        "question_key": keys.key_of(fields),
        "work_key": keys.work_key(fields),
        "pair_key": pair_key_of(result, of_job),
        "question": fields,
        "target_hash": fields["target"][:80],
        "target": (alias or spec.target.model)[:200],
        "engine": spec.runtime.engine,
        "workload": f"{work.name}@{work.version}",
        "title": work.title,
        "concurrency": point.concurrency,
        "occupied_context": point.occupied_context,
        "mode": arm.mode,
        "draft_limit": arm.draft_limit,
        "helper": arm.draft_model or "",
        "hardware": used.hardware_name()[:200] if used else "",
        "driver": used.driver()[:200] if used else "",
        "runtime_hash": runtime.manifest_hash if runtime else "",
        "build": runtime.version if runtime else "",
        "backend": runtime.backend if runtime else "",
        "setup": setup_words(spec.engine, arm),
        "not_restarted": result.not_restarted,
        "judged": result.verdict.word not in UNJUDGED and not _why_no_speedup(result),
        "margin": spec.margin,
        "integrity": integrity_of([*of_job, *result.checks]),
        "figures": {name: _figure(getattr(result, name)) for name in FIGURES} | {"speedup": _why_no_speedup(result)},
        "measured_at": measured_at,
    }


def used_devices(content: Mapping[str, Any], uuids: list[str]) -> HostInventory:
    """The inventory with those devices alone that a job was given."""
    inventory = HostInventory.model_validate(content)
    used = [d for d in inventory.devices if d.uuid in uuids]
    return inventory.model_copy(update={"devices": used}) if used else inventory


def setup_words(engine: EngineSettings, arm: Arm) -> str:
    """What the experiment itself set of how the engine sits on its host: ``8 threads, gpu layers 20, --n-cpu-moe 4``."""
    words = [f"{n.replace('_', ' ')} {v}" for n in SETUP if (v := getattr(engine, n)) is not None and (n, v) != ("slots", 1)]
    words += [f"{n.replace('_', ' ')} {v}" for n in SETUP_OF_THE_ARM if (v := getattr(arm, n)) is not None]
    words += [f"{flag} {' '.join(map(str, v)) if isinstance(v, list) else v}" for flag, v in sorted(engine.extra.items())]
    return ", ".join(words)[:400]


def pair_key_of(result: ComparisonResult, of_job: list[Check]) -> str:
    """The key that all trials of the ratio share, as the check on it found; empty where it didn't pass."""
    checks = [c for c in (*result.checks, *of_job) if c.name == "same comparison key"]
    found = [str(c.evidence.get("key", "")) for c in checks if c.passed]
    return found[0] if found and len(found) == len(checks) else ""


def integrity_of(checks: list[Check]) -> dict[str, Any]:
    """How many checks passed, failed, warn or had nothing to look at, and the sentence of the worst."""
    hard = [c for c in checks if c.state == "failed" and c.kind == "hard"]
    soft = [c for c in checks if c.state == "failed" and c.kind == "soft"]
    worst = (hard or soft or [None])[0]
    return {
        "passed": sum(c.state == "passed" for c in checks),
        "failed": len({c.name for c in hard}),
        "warnings": len({c.name for c in soft}),
        "unchecked": len({c.name for c in checks if c.state == "not checked"}),
        "worst": worst.sentence if worst else "",
    }


def _figure(value: Maybe) -> dict[str, Any]:
    if isinstance(value, Number):
        return {"value": value.value}
    return {"withheld": value.withheld, "reason_code": value.reason_code}


def _why_no_speedup(result: ComparisonResult) -> dict[str, Any]:
    """Why there is no speed-up, or no interval; empty if both are there."""
    told = result.speedup
    if isinstance(told, Withheld):
        return {"withheld": told.withheld, "reason_code": told.reason_code}
    return {"withheld": told.withheld} if told.withheld else {}
