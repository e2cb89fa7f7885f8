"""The rest of the experiment page: its question and hosts, what was held fixed, launch commands. No database access of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from speccore import early
from speccore.inventory import HostInventory
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Job
from specweb.experiments.services.more import blocks_in_words

from . import formats


@dataclass(frozen=True)
class Fact:
    name: str
    value: str
    code: str = ""


def held_fixed(spec: ExperimentSpec, job: Job, alias: str, inventory: HostInventory | None) -> list[Fact]:
    """The settings that are equal in all arms, requested and of the environment."""
    e = spec.engine
    facts = [Fact("target", alias or spec.target.model, formats.short_hash(job.target.manifest_hash) if job.target else "")]
    if job.runtime:
        r = job.runtime
        facts.append(
            Fact("runtime", f"{r.engine} {r.version}" + (f" · {r.backend}" if r.backend else ""), formats.short_hash(r.manifest_hash))
        )
    kv = f", KV {e.kv_type_k or 'default'} / {e.kv_type_v or 'default'}" if e.kv_type_k or e.kv_type_v else ""
    facts += [
        Fact("context", f"{e.context:,} tokens per slot{kv}"),
        Fact("slots", str(e.slots)),
        Fact("threads", str(e.threads) if e.threads else "as the servers were started" if spec.runtime.attached else "the host's default"),
        Fact("prefix cache", "on" if e.prefix_cache else "off"),
        *(Fact(flag, "", " ".join(map(str, v)) if isinstance(v, list) else str(v)) for flag, v in e.extra.items()),
        Fact("warm-up", _warmup(spec)),
        Fact("stop", "EOS or " + " / ".join(sorted({f"{p.max_tokens:,}" for p in spec.points})) + " tokens"),
        Fact("seed", f"{spec.seed}; equal in all arms of a block"),
        Fact("margin", f"{100 * spec.margin:g} %"),
        *([Fact("must hold", "; ".join(held))] if (held := required(spec)) else []),
        *([Fact("early looks", looks)] if (looks := early.schedule_in_words(spec)) else []),
    ]
    if inventory:
        system = " ".join(v for k in ("system", "release", "machine") if (v := inventory.os.get(k)))
        facts += [Fact("system", system), Fact("boot", "", inventory.boot_id), Fact("agent", inventory.agent_version)]
    return facts


def required(spec: ExperimentSpec) -> list[str]:
    """What an arm must still offer to be kept, where more is asked for than that quality is not shown to be lost."""
    asked = spec.requirements
    words = [f"{asked.context:,} tokens per slot"] if asked.context is not None else []
    words += [f"{asked.slots} slot{'' if asked.slots == 1 else 's'}"] if asked.slots is not None else []
    words += [f"{asked.free_memory_mib:,} MiB of memory left free"] if asked.free_memory_mib is not None else []
    return words + (["quality shown to be held"] if asked.quality == "held" else [])


def _warmup(spec: ExperimentSpec) -> str:
    asked = spec.warmup
    if asked.mode == "settled":
        words = f"at each point until the last two windows agree in time per token, at most {asked.most} requests"
    else:
        words = f"{asked.requests} {'request' if asked.requests == 1 else 'requests'} a trial"
    if any(p.concurrency > 1 for p in spec.points):
        words += ", and what fills several at once"
    return f"{words}, not counted"


@dataclass(frozen=True)
class JobTab:
    id: UUID
    name: str
    state: str
    current: bool
    href: str


def job_tabs(jobs: Sequence[Job], chosen: Job, base: str) -> list[JobTab]:
    """One tab for each host that answers the question, and for each further try; none when there is one job."""
    if len(jobs) < 2:
        return []
    tabs = []
    for job in jobs:
        host = job.host or job.wanted_host
        name = (host.name if host else "any host") + (", tried again" if job.retry_of_id else "")
        name += f", {blocks_in_words(job)}" if job.extends_id else ""
        tabs.append(JobTab(job.id, name, "paused" if job.is_paused else job.state, job.id == chosen.id, f"{base}?job={job.id}"))
    return tabs


def question_of(spec: ExperimentSpec, target: str, hardware: str) -> str:
    """The experiment's own sentence, or one made from what it compares."""
    if spec.question:
        return spec.question
    arms = [a.name for a in spec.arms if not a.is_baseline and not a.control]
    where = f" on {hardware}" if hardware else ""
    if not arms:
        return f"{spec.name}: how far is {target} from itself{where}?"
    return f"{spec.name}: does {', '.join(arms[:-1]) + ' or ' + arms[-1] if len(arms) > 1 else arms[0]} pay for {target}{where}?"


def runtime_line(spec: ExperimentSpec, job: Job) -> list[str]:
    """What the question is about, in short: engine, hardware, context, trials."""
    parts = [f"{spec.runtime.engine} {job.runtime.version}" if job.runtime else spec.runtime.engine]
    if job.inventory:
        parts.append(job.inventory.hardware)
    parts.append(f"context {spec.engine.context:,}")
    parts.append(f"{spec.engine.slots} slot{'s' if spec.engine.slots != 1 else ''}")
    return parts


_PHASES = ("start", "warmup", "probe", "stop")


def phases(durations_s: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How long each part of an attempt took, in their order."""
    names = [*(n for n in _PHASES if n in durations_s), *sorted(set(durations_s) - set(_PHASES))]
    return [(name, formats.duration(float(durations_s[name]))) for name in names]
