"""The command agreement: whether a run's arms answer as its baseline does, token by token, at temperature 0."""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speccore.agreement import NEAR_TIE_NAT, Agreement
from speccore.errors import SpecError

from . import evidence, runner
from .agreeing import Answers, Gaps, ask_target, divergences, judged, read_answers
from .config import find_config, load_config
from .filecache import FileCache
from .inventory import take_inventory
from .launch import Stopped
from .sweep import sweep_records
from .terminal import INTERRUPTED, OK, HashProgress, LiveLine, stopping


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    agree = actions.add_parser(
        "agreement",
        parents=[common],
        help="whether a run's arms answer as its baseline does, token by token, at temperature 0",
        description="Lays the greedy answers of each arm of a finished run beside the baseline's. Where two part, the baseline's engine "
        "is started once more and asked how far apart it holds its two likeliest tokens: near-ties are told from wrong tokens.",
    )
    agree.add_argument("folder", type=Path, metavar="DIR", help="what `run` has left")
    agree.add_argument("--no-engine", action="store_true", help="start nothing: how many answers part and where, but not of which kind")
    agree.add_argument("--json", type=Path, dest="json_file", metavar="F", help="write everything to this file")
    agree.set_defaults(action=_agreement)


def _agreement(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    if args.json_file and not args.json_file.resolve().parent.is_dir():
        raise SpecError(f"--json {args.json_file}: there is no such folder", remedy="Make the folder first.")
    answers = read_answers(args.folder)
    gaps: Gaps = {}
    if not args.no_engine and (n := len(divergences(answers))):
        try:
            gaps = _asked(args, answers, n)
        except Stopped:
            print("stopped: nothing is said")
            return INTERRUPTED
    found = judged(answers, gaps)
    if args.json_file:
        data = {"kind": "specweb-agreement", "version": 1, "near_tie_nat": NEAR_TIE_NAT, "left_out": dict(answers.left_out)}
        data["points"] = {point: {arm: _told(a) for arm, a in arms.items()} for point, arms in found.items()}
        evidence.write_whole(args.json_file.resolve(), json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n")
    print(shown(answers, found))
    return OK


def _asked(args: argparse.Namespace, answers: Answers, n: int) -> Gaps:
    config = load_config(args.config or find_config())
    host = take_inventory(config, FileCache(config.state_dir / "files.json", HashProgress()))
    if host.engine_records:
        sweep_records(host.engine_records, host.container_engines())
    job = runner.prepare(answers.offer, answers.workloads, host)
    stop, line = threading.Event(), LiveLine()
    line.show(f"asking the target about {n} place{'' if n == 1 else 's'} where answers part")
    try:
        with stopping(stop.set), tempfile.TemporaryDirectory(prefix="specweb-agreement-") as work:
            return ask_target(job, answers, Path(work), stop)
    finally:
        line.clear()


# --- for a person ---


def shown(answers: Answers, found: dict[str, dict[str, Agreement]]) -> str:
    lines: list[str] = []
    baseline = answers.offer.spec.baseline.name
    for point, arms in found.items():
        lines.append(point)
        for arm, agreed in arms.items():
            own = agreed.words() if agreed.n else "no prompt was answered twice without speculation"
            lines.append(f"  {baseline} with itself: {own}" if arm == baseline else f"  {arm}: {agreed.words()}")
            for d in agreed.of_kind("wrong"):
                lines.append(
                    f"    wrong: {d.item} in block {d.block}, token {d.at + 1}; the target's two likeliest are {d.gap_nat:.2g} nat apart"
                )
    lines += [f"left out, {n} answers to {why}" for why, n in sorted(answers.left_out.items())]
    return "\n".join(lines or ["the run has no answers"])


def _told(agreed: Agreement) -> dict[str, Any]:
    places = [asdict(d) | {"kind": d.kind} for d in agreed.divergences]
    return {
        "n": agreed.n,
        "n_identical": agreed.n_identical,
        "median_first": agreed.median_first,
        "words": agreed.words(),
        "divergences": places,
    }
