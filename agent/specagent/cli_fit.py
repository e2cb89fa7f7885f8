"""The command fit: the largest context that loads here, with and without each helper."""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
from pathlib import Path
from typing import Any

from speccore.errors import SpecError
from speccore.fit import MOST_STARTS, ArmFit, Fit, together
from speccore.memory_needs import size
from speccore.presets import nearest
from speccore.spec import ExperimentSpec

from . import local
from .cli_arms import check_writable, prepared_arms, used, write_json
from .fitting import fit_arms, limits_of
from .launch import Stopped
from .terminal import FAILED, INTERRUPTED, OK, LiveLine, stopping


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    fit = actions.add_parser(
        "fit",
        parents=[common],
        help="the largest context that loads here, with and without each helper",
        description="Starts the baseline and each arm of an experiment with one context after another, asks each for a short answer, and "
        "says which is the largest that loads. Exit code: 0 something is known of each arm, 3 of one nothing is.",
    )
    fit.add_argument("experiment", type=Path, metavar="FILE", help="the experiment, YAML or JSON")
    fit.add_argument("--arm", action="append", metavar="NAME", help="of the experiment, beside the baseline (default: all); more than once")
    fit.add_argument(
        "--reserve", type=int, metavar="MIB", help="memory that must stay free (default: the experiment's; on a CPU a twentieth of it all)"
    )
    fit.add_argument("--starts", type=int, default=MOST_STARTS, metavar="N", help=f"of each arm at the most (default: {MOST_STARTS})")
    fit.add_argument("--json", type=Path, dest="json_file", metavar="F", help="write everything to this file")
    fit.set_defaults(action=_fit)


def _fit(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    check_writable(args.json_file)
    for flag, value, least, most in (("--starts", args.starts, 1, 40), ("--reserve", args.reserve, 0, 2**30)):
        if value is not None and not least <= value <= most:
            raise SpecError(f"{flag} {value}: it is {least:,} to {most:,}", remedy="")
    spec = local.read_spec(args.experiment)
    arms = _arms(spec, args.arm)
    job = prepared_arms(args, spec, arms)
    stop, line = threading.Event(), LiveLine()
    try:
        with stopping(stop.set), tempfile.TemporaryDirectory(prefix="specweb-fit-") as work:
            found = fit_arms(job, arms, Path(work), limits_of(job, args.reserve, args.starts), stop, line.show)
    except Stopped:
        line.clear()
        print("stopped: nothing is said")
        return INTERRUPTED
    finally:
        line.clear()
    about = {"experiment": spec.model_dump(mode="json"), **used(job), "hardware": job.host.inventory.hardware_name()}
    largest = {a.arm: a.largest for a in found.arms}
    write_json(args.json_file, "fit", {**about, "fit": found.model_dump(mode="json"), "largest": largest})
    print(shown(found, spec.baseline.name))
    return FAILED if any(a.withheld for a in found.arms) else OK


def _arms(spec: ExperimentSpec, asked: list[str] | None) -> list[str]:
    """The baseline first. Raises :class:`SpecError` for an arm that the experiment lacks."""
    known = [a.name for a in spec.arms if not a.is_baseline and not a.control]
    for name in asked or []:
        if name not in known:
            raise SpecError(f"--arm {name!r}: the experiment has no such arm{nearest(name, known)}; it has {', '.join(known)}", remedy="")
    return [spec.baseline.name, *dict.fromkeys(asked or known)]


def shown(found: Fit, baseline: str) -> str:
    lines = [f"{a.arm}: {a.words()}" + _starts(a) for a in found.arms]
    if said := together(found, baseline):
        lines += ["", said]
    if found.reserve_bytes:
        lines.append(f"A context counts where {size(found.reserve_bytes)} of {found.place} stay free.")
    return "\n".join(lines)


def _starts(fit: ArmFit) -> str:
    n = sum(t.started for t in fit.tries)
    return f" [{n} start{'' if n == 1 else 's'}{'' if fit.exact or fit.withheld else ', not exact'}]"
