"""The command that tells before anything runs: plan FILE|PRESET. How long it would take, how sure it would be, and what serves better."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speccore import attached, plan, spans
from speccore.cautions import Place, cautions
from speccore.errors import SpecError, SpecWebError
from speccore.estimate import Minutes, job_minutes
from speccore.formats import plus_minus
from speccore.measurement import Withheld
from speccore.memory_needs import needs
from speccore.proposals import Expected, PlanChoice, expected, pilot_for
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec
from speccore.workloads import builtin

from . import local, siblings
from .config import find_config, load_config
from .filecache import FileCache
from .inventory import Host, chosen_runtime, nearest, take_inventory
from .models import configured_models
from .terminal import OK, HashProgress, note

#: Finds the experiment that is named, given the aliases of the models here.
Read = Callable[[argparse.Namespace, list[str]], ExperimentSpec | None]


def add_command(actions: Any, common: argparse.ArgumentParser, read: Read) -> None:
    told = actions.add_parser(
        "plan", parents=[common], help="how long an experiment would take here and how sure it would be; runs nothing"
    )
    told.add_argument("experiment", metavar="FILE|PRESET", help="the experiment, or one of `specweb-agent presets`")
    told.add_argument("--target", metavar="ALIAS", help="the model of a preset")
    told.add_argument("--draft", metavar="ALIAS", help="the draft model of a preset")
    told.add_argument("--model", metavar="ROLE=ALIAS", action="append", default=[], help="another model of a preset")
    time = told.add_mutually_exclusive_group()
    time.add_argument("--budget", type=_span, metavar="TIME", help="propose plans that fill this time: 45m, 3h, 1h30m")
    time.add_argument("--hours", type=_hours, dest="budget", metavar="N", help="the same in hours")
    told.add_argument("--runs", type=Path, default=Path(), metavar="DIR", help="folder with earlier runs, to go by (default: this one)")
    told.set_defaults(action=lambda args: _plan(args, read), resume=None, again=None, quiet=True)


def _span(text: str) -> float:
    try:
        return spans.seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _hours(text: str) -> float:
    return _span(f"{text}h")


def _plan(args: argparse.Namespace, read: Read) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    config = load_config(args.config or find_config())
    spec = read(args, [alias for alias, _ in configured_models(config)])
    assert spec is not None  # only a run that is gone on with has none
    host = take_inventory(config, FileCache(config.state_dir / "files.json", HashProgress(quiet=True)))
    planned = plan.plan_job(spec, builtin())
    minutes, found = _expected(spec, planned, host, args.runs, args.budget)
    starts = "trials, nothing is started" if spec.runtime.attached else "starts of the server"
    print(f"{len(planned.trials)} {starts}, {_span_words(minutes.low, minutes.high)}: {minutes.basis}")
    print("\n".join(_lines(found, args.budget)))
    _tell_what_is_worth_a_thought(spec, host)
    _tell_what_is_in_the_way(spec, host)
    return OK


def _tell_what_is_worth_a_thought(spec: ExperimentSpec, host: Host) -> None:
    """Each arm's memory against the machine's, and the hints that the form of the web page would give. Of what is missing here nothing."""
    models = {name: m for m in host.inventory.models for name in (m.manifest_hash, m.alias)}
    drafts = {a.name: models[name] for a in spec.arms if (name := attached.helper(spec, a)) in models}
    target = models.get(spec.target.model)
    if target is None:
        return
    try:
        runtime = chosen_runtime(spec, host.inventory.runtimes)
    except SpecWebError:
        runtime = None
    if not spec.runtime.attached:
        print("\n".join(["memory, estimated:", *(f"  {need.arm} {need.words()}" for need in needs(spec, host.inventory, target, drafts))]))
    workloads = {p.workload: builtin()[p.workload] for p in spec.points if p.workload in builtin()}
    for hint in cautions(spec, workloads, [Place("this host", host.inventory, target, drafts, runtime)]):
        note(f"{hint.field}: {hint.message}")


def _tell_what_is_in_the_way(spec: ExperimentSpec, host: Host) -> None:
    """A plan can be asked for before the build or the models are all there; `run` would refuse it, so that is told now."""
    try:
        local.make_offer(spec, host, builtin())
    except SpecWebError as error:
        note(error.message + (f". {error.remedy_text}" if error.remedy_text else ""))


def _expected(spec: ExperimentSpec, planned: JobPlan, host: Host, runs: Path, budget_s: float | None) -> tuple[Minutes, Expected]:
    inventory, wanted = host.inventory, spec.target.model
    target = next((m for m in inventory.models if wanted in (m.alias, m.manifest_hash)), None)
    if target is None:
        near = nearest(wanted, [m.alias for m in inventory.models])
        raise SpecError(f"target.model: no model {wanted!r} on this host{near}", remedy="Name a model of the agent's configuration.")
    before = list(siblings.siblings(runs, inventory))
    costs = [cost for s in before for cost in siblings.costs(s, target.manifest_hash)]
    on_gpu = inventory.devices[0].kind == "gpu"
    workloads = builtin()

    def clock(some: JobPlan) -> Minutes:
        return job_minutes(spec, some, model_bytes=target.size_bytes, on_gpu=on_gpu, earlier=costs, workloads=workloads)

    pilot = pilot_for(spec, [e for s in before for e in siblings.earlier(s, target.manifest_hash)])
    return clock(planned), expected(spec, planned, workloads, clock, pilot, budget_s)


def _lines(e: Expected, budget_s: float | None) -> list[str]:
    asked = e.asked if budget_s is None else f"{spans.in_words(budget_s)}"
    rows: list[tuple[str, PlanChoice | Withheld | None]] = [
        ("as it stands", e.as_typed),
        (f"for {asked}", e.proposal),
        ("in half the time", e.shorter),
        ("in twice the time", e.longer),
    ]
    width = max(len(name) for name, _ in rows)
    told = [f"{name:{width}}  {_choice(p)}" for name, p in rows if p is not None]
    if isinstance(e.as_typed, PlanChoice) and len(e.as_typed.percent_at) > 1:
        told.append(
            "as it stands, by point: " + ", ".join(f"{key} {plus_minus(percent)}" for key, percent in e.as_typed.percent_at.items())
        )
    return [*told, f"the widest 95 % interval is meant; widths are {e.basis}"]


def _choice(p: PlanChoice | Withheld) -> str:
    if isinstance(p, Withheld):
        return p.withheld
    probes = "" if p.probes is None else f" of {p.probes} probe{'' if p.probes == 1 else 's'}"
    return f"{f'{p.blocks} blocks{probes}':24}  {_span_words(p.low_minutes, p.high_minutes):25}  {plus_minus(p.percent)}"


def _span_words(low: float, high: float) -> str:
    """Minutes as a range in words."""
    words = [spans.in_words(60 * m) for m in (low, high)]
    return words[0] if words[0] == words[1] else " to ".join(words)
