"""The rest of the experiment page: order of trials, progress, what was held fixed, launch commands. No database access of its own."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from django.urls import reverse
from speccore.inventory import HostInventory
from speccore.protocol import Running
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Job
from specweb.results.models import Attempt, Trial

from . import formats


@dataclass(frozen=True)
class TrialChip:
    """One planned server start, with what became of it."""

    number: int  # from 1, in order of running
    arm: str
    mode: str
    state: str  # accepted, failed, running, planned
    duration: str
    title: str
    href: str
    n_attempts: int


@dataclass(frozen=True)
class Block:
    number: int
    trials: list[TrialChip]


def trial_blocks(trials: Sequence[Trial], running: Running | None) -> list[Block]:
    """Trials in order of running, by block."""
    chips = [(t.block, _chip(t, running)) for t in trials]
    return [Block(block, [chip for _, chip in group]) for block, group in groupby(chips, key=lambda pair: pair[0])]


def _chip(trial: Trial, running: Running | None) -> TrialChip:
    attempts = list(trial.attempts.all())
    shown = next((a for a in attempts if a.accepted), attempts[-1] if attempts else None)
    state = "planned"
    if shown is not None:
        state = "accepted" if shown.accepted else "failed"
    if running is not None and running.trial == trial.plan_id and state != "accepted":
        state = "running"
    return TrialChip(
        number=trial.index + 1,
        arm=trial.arm.name,
        mode=trial.arm.mode,
        state=state,
        duration=formats.duration(seconds) if shown and (seconds := formats.seconds_between(shown.started_at, shown.ended_at)) else "",
        title=_chip_title(trial, shown, state),
        href=reverse("attempt", args=[shown.id]) if shown else "",
        n_attempts=len(attempts),
    )


def _chip_title(trial: Trial, shown: Attempt | None, state: str) -> str:
    title = f"trial {trial.index + 1}: {trial.arm.name}, block {trial.block}, place {trial.position} — {state}"
    if shown is not None and shown.error:
        title += f": {shown.error.get('message', '')}"
    return title


@dataclass(frozen=True)
class Progress:
    """How far a job is. ``share`` is of trials, from 0 to 100."""

    state: str
    headline: str
    detail: str
    next_step: str
    n_done: int
    n_trials: int
    live: bool  # something will change by itself

    @property
    def share(self) -> int:
        return round(100 * self.n_done / self.n_trials) if self.n_trials else 0


def progress_of(job: Job, n_done: int, n_trials: int) -> Progress:
    """The state of a job in words, with what its reader can do next."""
    headline, step = _STATES[job.state]
    host = job.host.name if job.host else (job.wanted_host.name if job.wanted_host else "")
    detail = job.reason
    if job.state == "running" and (running := running_of(job)):
        detail = _running_words(running, n_done, n_trials)
    error = job.error or {}
    return Progress(
        state=job.state,
        headline=headline.format(host=host or "a host"),
        detail=detail or str(error.get("message", "")),
        next_step=str(error.get("remedy", "")) or step.format(host=host or "the host"),
        n_done=n_done,
        n_trials=n_trials,
        live=not job.is_final,
    )


_STATES: dict[str, tuple[str, str]] = {
    "waiting": ("Waiting for {host}", "Start the agent there (specweb-agent poll); the job is handed out by itself."),
    "queued": ("Ready for {host}", "{host} gets the job with its next poll."),
    "claimed": ("{host} has taken the job", "The first trial begins in a moment."),
    "running": ("Running on {host}", ""),
    "stalled": ("{host} is silent", "See whether the machine and its agent run; the job goes on by itself when it returns."),
    "completed": ("Measured; the evidence is being read", "The comparison appears here by itself."),
    "processed": ("Finished on {host}", ""),
    "failed": ("Failed", "What was measured until then is kept below."),
    "cancelled": ("Cancelled", "What was measured until then is kept below."),
}


def running_of(job: Job) -> Running | None:
    """What the agent said last about its work, while it works."""
    return Running.model_validate(job.progress) if job.progress and job.state in ("claimed", "running", "stalled") else None


def _running_words(r: Running, n_done: int, n_trials: int) -> str:
    parts = [f"trial {min(n_done + 1, n_trials)} of {n_trials}"]
    if r.trial:
        parts.append(r.trial)
    if r.phase:
        parts.append(f"{r.phase}, probe {r.probe} of {r.n_probes}" if r.phase == "probing" and r.n_probes else r.phase)
    if r.tokens_per_s:
        parts.append(f"{r.tokens_per_s:.0f} tokens/s")
    if r.eta_s:
        parts.append(f"about {formats.duration(r.eta_s)} left")
    return " · ".join(parts)


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
        Fact("threads", str(e.threads) if e.threads else "the host's default"),
        Fact("prefix cache", "on" if e.prefix_cache else "off"),
        *(Fact(flag, "", " ".join(map(str, v)) if isinstance(v, list) else str(v)) for flag, v in e.extra.items()),
        Fact("warm-up", f"{spec.warmup.requests} {'request' if spec.warmup.requests == 1 else 'requests'} a trial, not counted"),
        Fact("stop", "EOS or " + " / ".join(sorted({f"{p.max_tokens:,}" for p in spec.points})) + " tokens"),
        Fact("seed", f"{spec.seed}; equal in all arms of a block"),
        Fact("margin", f"{100 * spec.margin:g} %"),
    ]
    if inventory:
        system = " ".join(v for k in ("system", "release", "machine") if (v := inventory.os.get(k)))
        facts += [Fact("system", system), Fact("boot", "", inventory.boot_id), Fact("agent", inventory.agent_version)]
    return facts


@dataclass(frozen=True)
class CommandPart:
    text: str
    added: bool


@dataclass(frozen=True)
class Command:
    arm: str
    mode: str
    parts: list[CommandPart]
    missing: list[str]  # what the baseline has and this arm lacks


def command_differences(spec: ExperimentSpec, commands: Mapping[str, Sequence[str]]) -> list[Command]:
    """Each arm's launch command, flag by flag, with what it adds to the baseline's marked."""
    base = Counter(_units(commands.get(spec.baseline.name, [])))
    result = []
    for arm in spec.arms:
        if arm.name not in commands:
            continue
        units = _units(commands[arm.name])
        left = base.copy()
        parts = []
        for unit in units:
            known = left[unit] > 0
            left[unit] -= 1
            parts.append(CommandPart(unit, added=not known and not arm.is_baseline))
        result.append(Command(arm.name, arm.mode, parts, [] if arm.is_baseline else sorted((base - Counter(units)).elements())))
    return result


def _units(argv: Iterable[str]) -> list[str]:
    """A command cut before each flag, so that a flag stays with its values; quoted where a shell needs it."""
    units: list[list[str]] = []
    for i, word in enumerate(argv):
        quoted = word if word.startswith("{") and word.endswith("}") else shlex.quote(word)
        if i < 2 or word.startswith("-") or not units:
            units.append([quoted])
        else:
            units[-1].append(quoted)
    return [" ".join(u) for u in units]


@dataclass(frozen=True)
class JobTab:
    id: UUID
    name: str
    state: str
    current: bool
    href: str


def job_tabs(jobs: Sequence[Job], chosen: Job, base: str) -> list[JobTab]:
    """One tab for each host that answers the question; none when there is one."""
    if len(jobs) < 2:
        return []
    named = [(j, j.host or j.wanted_host) for j in jobs]
    return [JobTab(j.id, host.name if host else "any host", j.state, j.id == chosen.id, f"{base}?job={j.id}") for j, host in named]


def question_of(spec: ExperimentSpec, target: str, hardware: str) -> str:
    """The experiment's own sentence, or one made from what it compares."""
    if spec.question:
        return spec.question
    arms = [a.name for a in spec.arms if not a.is_baseline and not a.control]
    where = f" on {hardware}" if hardware else ""
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
