"""What an experiment would do if it were submitted now: its trials in order, each host's answer and commands, minutes, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from django.conf import settings
from speccore import early, untimed
from speccore.cautions import Place, caution, cautions
from speccore.commandline import Command, command_differences
from speccore.estimate import Minutes, TrialCost, job_minutes
from speccore.inventory import HostInventory, ModelInfo, RuntimeInfo
from speccore.memory_needs import Need, needs
from speccore.plan import plan_job
from speccore.proposals import Earlier, Expected, expected, pilot_for
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec, Placement, SpecProblem
from speccore.workload import Workload

from specweb.accounts.models import Team, User
from specweb.experiments.models import Host

from .checking import workloads_of
from .placement import Fit, NoFit, Offer, able, asked_for, fit, hosts_of, labels_in_words, real_commands
from .silence import Limits, host_state

#: Hosts for which plans are proposed: an experiment on more hosts is looked at for the first of them.
MOST_PROPOSED = 8


@dataclass(frozen=True)
class TrialLine:
    number: int  # from 1, in order of running
    block: int
    position: int
    arm: str
    mode: str
    points: list[str]


@dataclass(frozen=True)
class HostPreview:
    """A host of the team. ``commands`` hold the host's own paths; the port, drawn at each start, stands as {port}."""

    id: UUID
    name: str
    hardware: str
    state: str  # online, draining, stalled, lost, never seen
    fits: bool
    chosen: bool  # it fits and a job of the experiment would go to it; one that is asked for by name may have to be waited for
    why_not: str  # in words, one clause: why no job would go to it, or why it would wait; empty where it would run now
    refusals: list[str]
    runtime: str
    target: str
    commands: list[Command]
    minutes: Minutes | None
    memory: list[Need]  # of each arm; none where it doesn't fit
    expected: Expected | None  # how wide the intervals would be, and plans that serve better; None where no job would go


@dataclass(frozen=True)
class Preview:
    """``n_requests`` are the timed ones of one job; ``minutes`` are of the slowest of the hosts that it would go to."""

    n_trials: int
    n_requests: int
    n_untimed: int  # asked after the timed part: greedy prompts once more, continuations of the sampling test
    order: list[TrialLine]
    hosts: list[HostPreview]
    warnings: list[SpecProblem]
    minutes: Minutes | None
    looks: str  # after which blocks an arm may be decided and end; '' where none may
    attached: bool  # nothing is started: a trial asks servers that stand already


def preview(
    spec: ExperimentSpec,
    team: Team,
    *,
    now: datetime,
    limits: Limits | None = None,
    history: Mapping[UUID, Sequence[TrialCost]] | None = None,
    pilots: Mapping[UUID, Sequence[Earlier]] | None = None,
    budget_s: float | None = None,
    user: User | None = None,
) -> Preview:
    """Of a spec that has passed :func:`checking.check`; three statements, however many hosts there are.

    ``history`` holds what earlier trials of the same target took, by host, and ``pilots`` what earlier comparisons of it varied
    by. ``budget_s``: plans are proposed that fill so many seconds. ``user``: whose own workloads are there too.
    ``limits`` are the installation's unless given. Raises :class:`SpecError` if the spec can't be planned.
    """
    limits = limits or Limits.of(settings)
    contents = {name: w.parsed for name, w in workloads_of(spec, team, user)[0].items()}
    plan = plan_job(spec, contents)
    seen = {h.pk: (h, h.inventory.parsed) for h in hosts_of(team.pk) if h.inventory}
    offers = [
        Offer(h, h.n_jobs, host_state(h, now, limits) == "online" and not h.takes_no_jobs, fit(spec, offered))
        for h, offered in seen.values()
    ]
    chosen = _chosen(spec.placement, offers)
    proposed = chosen or {o.host.pk for o in offers if isinstance(o.answer, Fit)}
    hosts = []
    for offer in offers:
        host, offered = seen[offer.host.pk]
        earlier = (history or {}).get(host.pk, ())
        shown = _host(spec, plan, offer, offered, _state(host, now, limits), host.pk in chosen, earlier, _named(chosen, offers), contents)
        if isinstance(offer.answer, Fit) and host.pk in proposed and sum(h.expected is not None for h in hosts) < MOST_PROPOSED:
            clock = partial(_minutes, spec, offer.answer, offered, earlier, contents)
            pilot = pilot_for(spec, (pilots or {}).get(host.pk, ()))
            shown = replace(shown, expected=expected(spec, plan, contents, clock, pilot, budget_s))
        hosts.append(shown)
    places = [_place(spec, o, seen[o.host.pk][1]) for o in offers if o.host.pk in proposed and isinstance(o.answer, Fit)]
    modes = {a.name: a.mode for a in spec.arms}
    return Preview(
        n_trials=len(plan.trials),
        n_requests=sum(len(t.probes) for t in plan.trials),
        n_untimed=sum(untimed.n_requests(spec, plan)),
        order=[TrialLine(t.index + 1, t.block, t.position, t.arm, modes[t.arm], t.points) for t in plan.trials],
        hosts=hosts,
        warnings=[*cautions(spec, contents, places), *_placement_warnings(spec, offers, chosen)],
        minutes=_slowest(hosts),
        looks=early.schedule_in_words(spec),
        attached=spec.runtime.attached,
    )


def _chosen(placement: Placement, offers: Sequence[Offer]) -> set[UUID]:
    """The hosts that jobs would go to. Where any host will do, it must be able to take one now."""
    asked = [o for o in offers if asked_for(placement, o.host)]
    if placement.hosts or placement.each:
        return {o.host.pk for o in asked if isinstance(o.answer, Fit)}
    return {o.host.pk for o in able(asked)[: placement.count]}


def _named(chosen: set[UUID], offers: Sequence[Offer]) -> str:
    return ", ".join(o.host.name for o in offers if o.host.pk in chosen)


def _state(host: Host, now: datetime, limits: Limits) -> str:
    state = host_state(host, now, limits)
    return "draining" if state == "online" and host.takes_no_jobs else state


def _host(
    spec: ExperimentSpec,
    plan: JobPlan,
    offer: Offer,
    offered: HostInventory,
    state: str,
    chosen: bool,
    earlier: Sequence[TrialCost],
    others: str,
    workloads: Mapping[str, Workload],
) -> HostPreview:
    host, answer = offer.host, offer.answer
    assert host.inventory is not None
    runtimes = {r.manifest_hash: r for r in offered.runtimes}
    models = {m.manifest_hash: m for m in offered.models}
    commands: list[Command] = []
    minutes, target, refusals = None, None, []
    memory: list[Need] = []
    if isinstance(answer, Fit):
        commands = command_differences(spec, real_commands(spec, offered, answer))
        target = models[answer.target_hash]
        memory = needs(spec, offered, target, {arm: models[sha256] for arm, sha256 in answer.draft_hashes.items()})
        minutes = _minutes(spec, answer, offered, earlier, workloads, plan)
    else:
        refusals = list(dict.fromkeys(f"{r.message}. {r.remedy}" if r.remedy else r.message for r in answer.refusals))
    return HostPreview(
        id=host.pk,
        name=host.name,
        hardware=host.inventory.hardware,
        state=state,
        fits=isinstance(answer, Fit),
        chosen=chosen,
        why_not=_why_not(spec.placement, offer, state, chosen, others),
        refusals=refusals,
        runtime=_runtime(runtimes.get(answer.runtime_hash)),
        target=_model(target),
        commands=commands,
        minutes=minutes,
        memory=memory,
        expected=None,
    )


def _minutes(
    spec: ExperimentSpec,
    answer: Fit,
    offered: HostInventory,
    earlier: Sequence[TrialCost],
    workloads: Mapping[str, Workload],
    plan: JobPlan,
) -> Minutes:
    target = next(m for m in offered.models if m.manifest_hash == answer.target_hash)
    on_gpu = offered.devices[0].kind == "gpu"
    return job_minutes(spec, plan, model_bytes=target.size_bytes, on_gpu=on_gpu, earlier=earlier, workloads=workloads)


def _why_not(placement: Placement, offer: Offer, state: str, chosen: bool, others: str) -> str:
    if isinstance(offer.answer, NoFit):
        return offer.answer.reason
    if not asked_for(placement, offer.host):
        return "is not among the hosts asked for" if placement.hosts else f"is no host {labels_in_words(placement.labels)}"
    if state == "draining":
        return "takes no new jobs (draining)"
    if state != "online":
        at = offer.host.last_seen_at
        return f"is silent since {at:%Y-%m-%d %H:%M:%S} UTC" if at else "was never heard of"
    return "" if chosen else f"could run it; {others} is taken first"


def _runtime(runtime: RuntimeInfo | None) -> str:
    if runtime is None:
        return ""
    return f"{runtime.engine} {runtime.version}" + (f" · {runtime.backend}" if runtime.backend else "")


def _model(model: ModelInfo | None) -> str:
    if model is None:
        return ""
    return " · ".join(part for part in (model.alias, model.architecture, model.quantization) if part)


def _place(spec: ExperimentSpec, offer: Offer, offered: HostInventory) -> Place:
    assert isinstance(offer.answer, Fit)
    models = {m.manifest_hash: m for m in offered.models}
    drafts = {arm: models[sha256] for arm, sha256 in offer.answer.draft_hashes.items()}
    runtime = next(r for r in offered.runtimes if r.manifest_hash == offer.answer.runtime_hash)
    return Place(offer.host.name, offered, models[offer.answer.target_hash], drafts, runtime)


def _placement_warnings(spec: ExperimentSpec, offers: Sequence[Offer], chosen: set[UUID]) -> list[SpecProblem]:
    placement, found = spec.placement, []
    asked = [o for o in offers if asked_for(placement, o.host)]
    for i, name in enumerate(placement.hosts):
        offer = next((o for o in asked if o.host.name == name), None)
        if offer is None:
            found.append(caution(f"placement.hosts.{i}", f"{name} has not said yet what it offers: its job would wait"))
        elif isinstance(offer.answer, NoFit):
            found.append(caution(f"placement.hosts.{i}", f"its job would wait: {name} {offer.answer.reason}"))
    if not placement.hosts and not any(isinstance(o.answer, Fit) for o in asked):
        reasons = "; ".join(f"{o.host.name} {o.answer.reason}" for o in asked if isinstance(o.answer, NoFit))
        found.append(
            caution(
                "placement", f"no host of the team can run it as it is: {reasons}" if reasons else "no host can run it yet: it would wait"
            )
        )
    elif not placement.hosts and not placement.each and len(chosen) < placement.count:
        n = placement.count - len(chosen)
        words = f"{placement.count} host{'' if placement.count == 1 else 's'} asked for, {len(chosen)} can take it now: {n} job{'' if n == 1 else 's'} would wait"
        found.append(caution("placement.count", words))
    if placement.hosts and (placement.labels or placement.each or placement.count != 1):
        found.append(caution("placement", "hosts are named, so labels, count and each are not looked at"))
    return found


def _slowest(hosts: Sequence[HostPreview]) -> Minutes | None:
    """Jobs run beside each other, so the slowest decides; of hosts that fit where none is chosen."""
    found = [h.minutes for h in hosts if h.chosen and h.minutes] or [h.minutes for h in hosts if h.minutes]
    return max(found, key=lambda m: (m.high, m.low), default=None)
