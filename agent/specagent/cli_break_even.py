"""The command break-even: how many tokens per target pass an arm needs here, by acceptance that is asked for."""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
from pathlib import Path
from typing import Any

from speccore.break_even import Curve, lengths
from speccore.errors import SpecError
from speccore.presets import nearest
from speccore.spec import ExperimentSpec, is_model_drafter

from . import local
from .cli_arms import check_writable, prepared_arms, used, write_json
from .launch import Stopped
from .synthesis import measure_curve
from .terminal import INTERRUPTED, OK, LiveLine, stopping

NOTICE = "Synthetic acceptance: dice decided what was accepted, so the text is no real output, and these figures belong beside no others."
_MOST_REQUESTS = 200


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    even = actions.add_parser(
        "break-even",
        parents=[common],
        help="how many tokens per target pass an arm needs here to pay, by synthetic acceptance",
        description="Starts the baseline, an arm at one acceptance length after another, and the baseline again. It needs a build of llama-server "
        "whose help lists --spec-synth-len. What it finds goes into a file of its own and never into an experiment.",
    )
    even.add_argument("experiment", type=Path, metavar="FILE", help="the experiment, YAML or JSON; its first point is what is asked")
    even.add_argument("--arm", action="append", metavar="NAME", help="of the experiment (default: all with a helper model); more than once")
    even.add_argument(
        "--lengths", metavar="L,L,…", help="to ask for, the token of the target included (default: 1, 1.5, 2, 3, … by the limit)"
    )
    even.add_argument("--requests", type=int, default=8, metavar="N", help="answers in each start (default: 8)")
    even.add_argument("--json", type=Path, dest="json_file", metavar="F", help="write everything to this file")
    even.set_defaults(action=_break_even)


def _break_even(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    check_writable(args.json_file)
    if not 1 <= args.requests <= _MOST_REQUESTS:
        raise SpecError(f"--requests {args.requests}: it is 1 to {_MOST_REQUESTS}", remedy="")
    spec = local.read_spec(args.experiment)
    arms = _arms(spec, args.arm)
    asked = {arm: _lengths(args.lengths, spec.arm(arm).draft_limit) for arm in arms}
    job = prepared_arms(args, spec, arms)
    stop, line = threading.Event(), LiveLine()
    try:
        with stopping(stop.set), tempfile.TemporaryDirectory(prefix="specweb-break-even-") as work:
            found = [measure_curve(job, arm, asked[arm], args.requests, Path(work), stop, line.show) for arm in arms]
    except Stopped:
        line.clear()
        print("stopped: nothing is said")
        return INTERRUPTED
    finally:
        line.clear()
    curves = [c.model_dump(mode="json") | {"break_even": c.break_even(), "words": c.words()} for c in found]
    about = {"experiment": spec.model_dump(mode="json"), **used(job), "hardware": job.host.inventory.hardware_name()}
    write_json(args.json_file, "break-even", {"synthetic": True, **about, "point": spec.points[0].key, "curves": curves})
    print("\n\n".join([*(shown(c) for c in found), NOTICE]))
    return OK


def _arms(spec: ExperimentSpec, asked: list[str] | None) -> list[str]:
    """Raises :class:`SpecError` for an arm that the experiment lacks, or whose drafts no model makes."""
    known = [a.name for a in spec.arms if is_model_drafter(a.mode)]
    for name in asked or []:
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise SpecError(f"--arm {name!r}: the experiment has no such arm with a helper model{nearest(name, known)}; {there}", remedy="")
    if not known:
        raise SpecError("no arm of the experiment has a helper model", remedy="Synthetic acceptance needs drafts from one.")
    return list(dict.fromkeys(asked or known))


def _lengths(text: str | None, limit: int | None) -> list[float]:
    if text is None:
        return lengths(limit)
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        raise SpecError(f"--lengths {text!r}: numbers with commas between them, such as 1,1.5,2,3", remedy="") from None
    most = lengths(limit)[-1]
    if not found or not all(1 <= length <= most for length in found):
        raise SpecError(f"--lengths {text!r}: each is 1 to {most:g}, the draft limit and the target's own token", remedy="")
    return sorted(set(found))


def shown(c: Curve) -> str:
    before, after = c.baseline_tokens_per_s
    rows = [f"  {p.asked_length:6g}  {p.tokens_per_pass:8.2f}  {p.tokens_per_s:8.1f}  {p.ratio:7.2f}×  {p.n_steps:6,}" for p in c.points]
    head = "   asked  per pass  tokens/s     ratio   steps"
    return "\n".join([f"{c.arm}: {c.words()}", head, *rows, f"  without speculation {before:.1f} tokens/s before and {after:.1f} after"])
