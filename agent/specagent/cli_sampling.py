"""The command sampling-test: whether speculation changes what is drawn, on two servers or on the arms of an experiment."""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speccore.errors import SpecError
from speccore.presets import nearest
from speccore.sampling_rule import ACCUSE_P, CONTINUATIONS, MIN_CONTINUATIONS, POSITIONS, Judged, RuleResult
from speccore.spec import BASELINE_MODE
from speccore.workloads import builtin

from . import local
from .asking import MOST_AT_ONCE
from .cli_arms import check_writable, prepared_arms, used, write_json
from .launch import Stopped
from .sampling import Asked, compare_arms, compare_servers
from .served import Door, Served, look
from .terminal import INTERRUPTED, OK, LiveLine, stopping

#: Exit codes beside the usual ones: somebody is accused; nothing can be said.
ACCUSED, NOTHING_SAID = 1, 4
_MOST_POSITIONS = 64
_MOST_CONTINUATIONS = 1_000_000


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    test = actions.add_parser(
        "sampling-test",
        parents=[common],
        help="whether speculation changes what is drawn: many short continuations with it and without",
        description="Draws short continuations without speculation, with it, and without it again, all with seeds of their own, and "
        "compares the tokens position by position. Exit code: 0 nobody accused, 1 somebody is, 4 nothing can be said.",
    )
    test.add_argument(
        "what",
        nargs="+",
        metavar="URL_OFF URL_ON | FILE",
        help="two llama-servers of the same target model, or an experiment to start here",
    )
    test.add_argument("--arm", action="append", metavar="NAME", help="of the experiment (default: all that speculate); more than once")
    test.add_argument("--n", type=int, default=CONTINUATIONS, help=f"continuations of each arm (default: {CONTINUATIONS})")
    test.add_argument("--positions", type=int, default=POSITIONS, help=f"tokens of each that are looked at (default: {POSITIONS})")
    test.add_argument(
        "--prompts", type=int, default=1, metavar="N", help="different prompts, the continuations shared among them (default: 1)"
    )
    test.add_argument("--workload", default="free-text", metavar="NAME", help="where they come from (default: free-text)")
    test.add_argument("--temperature", type=float, default=0.8, help="default: 0.8; the engine's other samplers stay as they are")
    test.add_argument("--concurrency", type=int, metavar="C", help="requests at once (default: the server's slots)")
    test.add_argument("--seed", type=int, default=1, help="the first of the seeds (default: 1)")
    test.add_argument("--json", type=Path, dest="json_file", metavar="F", help="write everything to this file")
    test.set_defaults(action=_sampling_test)


def _sampling_test(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    _check(args)
    stop, line = threading.Event(), LiveLine()
    try:
        with stopping(stop.set):
            done = _of_servers(args, stop, line) if len(args.what) == 2 else _of_experiment(args, stop, line)
    except Stopped:
        line.clear()
        print("stopped: nothing is said")
        return INTERRUPTED
    finally:
        line.clear()
    result, drafted, about = done
    write_json(args.json_file, "sampling-test", {**about, "drafted": drafted, "result": asdict(result)})
    print(shown(result, drafted))
    if result.control.outcome == "control failed":
        return NOTHING_SAID
    return ACCUSED if any(arm.outcome == "accused" for arm in result.arms) else OK


Done = tuple[RuleResult, dict[str, int], dict[str, Any]]


def _of_servers(args: argparse.Namespace, stop: threading.Event, line: LiveLine) -> Done:
    if args.arm:
        raise SpecError("--arm names an arm of an experiment, and two servers are given", remedy="Leave it out.")
    off, on = (_look(url) for url in args.what)
    if off.facts.model and on.facts.model and off.facts.model != on.facts.model:
        raise SpecError(f"the servers have different models: {off.facts.model} and {on.facts.model}", remedy="Start both with one target.")
    slots = min(off.facts.slots or 1, on.facts.slots or 1)
    asked = _asked(args, slots)
    result, drafted = compare_servers(off.target, on.target, off.dialect, asked, stop, line.show)
    return result, drafted, {"servers": [off.facts.url, on.facts.url], "asked": asdict(asked)}


def _look(url: str) -> Served:
    door = Door(url, {})
    try:
        served = look(door, {}, api=None, model=None)
    finally:
        door.close()
    if served.facts.engine != "llama-server":
        raise SpecError(f"{url} is no llama-server: the test needs the ids of the tokens as llama-server gives them", remedy="")
    return served


def _of_experiment(args: argparse.Namespace, stop: threading.Event, line: LiveLine) -> Done:
    spec = local.read_spec(Path(args.what[0]))
    known = [a.name for a in spec.arms if a.mode != BASELINE_MODE]
    arms = list(dict.fromkeys(args.arm or known))
    for name in arms:
        if name not in known:
            raise SpecError(f"--arm {name!r}: the experiment has no such arm{nearest(name, known)}; it has {', '.join(known)}", remedy="")
    asked = _asked(args, spec.engine.slots)
    if asked.concurrency > spec.engine.slots:
        raise SpecError(
            f"--concurrency {asked.concurrency}: the experiment's engine has {spec.engine.slots} slots", remedy="Set engine.slots."
        )
    job = prepared_arms(args, spec, arms)
    with tempfile.TemporaryDirectory(prefix="specweb-sampling-") as work:
        result, drafted = compare_arms(job, arms, asked, Path(work), stop, line.show)
    return result, drafted, {"experiment": job.offer.spec.model_dump(mode="json"), **used(job), "asked": asdict(asked)}


def _asked(args: argparse.Namespace, slots: int) -> Asked:
    workload = builtin()[args.workload]
    if args.prompts > len(workload.items):
        raise SpecError(f"--prompts {args.prompts}: {workload.ref} has {len(workload.items)}", remedy="")
    return Asked(
        prompts={item.id: item.opening for item in workload.items[: args.prompts]},
        n=args.n,
        positions=args.positions,
        temperature=args.temperature,
        first_seed=args.seed,
        concurrency=args.concurrency or min(slots, MOST_AT_ONCE),
    )


def _check(args: argparse.Namespace) -> None:
    """Raises :class:`SpecError` that names the first fault."""
    if len(args.what) > 2:
        raise SpecError(
            f"{len(args.what)} things are named", remedy="Name two servers, the one without speculation first; or one experiment."
        )
    known = builtin()
    if args.workload not in known:
        raise SpecError(
            f"there is no workload {args.workload!r}{nearest(args.workload, known)}; known: {', '.join(sorted(known))}", remedy=""
        )
    limits = [
        ("--n", args.n, MIN_CONTINUATIONS, _MOST_CONTINUATIONS),
        ("--positions", args.positions, 1, _MOST_POSITIONS),
        ("--prompts", args.prompts, 1, args.n),
        ("--concurrency", args.concurrency if args.concurrency is not None else 1, 1, MOST_AT_ONCE),
        ("--seed", args.seed, 0, 2**31 - 1 - 42 * _MOST_CONTINUATIONS),
    ]
    for flag, value, least, most in limits:
        if not least <= value <= most:
            raise SpecError(f"{flag} {value}: it is {least:,} to {most:,}", remedy="")
    if not 0 < args.temperature <= 5:
        raise SpecError(f"--temperature {args.temperature:g}: it is above 0, up to 5", remedy="At 0 nothing is drawn: compare the answers.")
    check_writable(args.json_file)


# --- for a person ---

_MARK = {"accused": "ACCUSED", "not accused": "not accused", "control failed": "nothing said"}


def shown(result: RuleResult, drafted: dict[str, int]) -> str:
    """A paragraph and a table for each arm, the control last."""
    lines = []
    for arm in result.arms:
        lines += [
            f"{arm.arm}: {_MARK[arm.outcome]}. It {arm.words}."
            if arm.outcome == "accused"
            else f"{arm.arm}: {_MARK[arm.outcome]}; {arm.words}."
        ]
        lines += [f"  {arm.n:,} continuations, {drafted[arm.arm]:,} tokens drafted", *_table(arm), ""]
    control = result.control
    lines += [f"control: {control.words}.", f"  {control.n:,} continuations more without speculation", *_table(control), ""]
    lines.append(
        f"Accused is who has p < {ACCUSE_P:g} (Holm; {result.n_permutations:,} permutations) and at least 2 % of the probability elsewhere."
    )
    return "\n".join(lines)


def _table(judged: Judged) -> list[str]:
    rows = ["  position   kinds   p (Holm)          seen   at least   found from"]
    for p in judged.positions:
        found = f"{p.found_at:10.1%}" if p.found_at is not None else " " * 9 + "–"
        rows.append(f"  {p.position:8}   {p.n_kinds:5}   {p.p_adjusted:8.2g}    {p.total_variation:10.1%}   {p.at_least:8.1%}   {found}")
    return rows
