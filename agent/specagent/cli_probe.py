"""The commands for a server that somebody else started: probe URL · compare A.json B.json."""

from __future__ import annotations

import argparse
import logging
import os
import threading
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from speccore.errors import SpecError
from speccore.presets import nearest, preset
from speccore.survey import ComparedCell, Survey, compare_surveys
from speccore.workload import Workload
from speccore.workloads import builtin

from . import evidence, survey_text
from .asking import MOST_AT_ONCE
from .local import read_json
from .served import Door, look
from .surveyor import Asked, Surveyed, survey
from .terminal import FAILED, INTERRUPTED, OK, LiveLine, stopping

_MOST_TOKENS = 131_072
_DEFAULT_WORKLOADS = ("count", "python-code", "free-text")


def add_commands(actions: Any) -> None:
    probe = actions.add_parser("probe", help="measure a server that somebody else started")
    probe.add_argument("url", metavar="URL", nargs="?", help="its address: llama-server, vLLM, or another of OpenAI's interface")
    probe.add_argument(
        "--workload", action="append", metavar="NAME", help=f"prompts (default: {', '.join(_DEFAULT_WORKLOADS)}); more than once"
    )
    probe.add_argument("--preset", metavar="NAME", help="the workloads of a preset")
    probe.add_argument("--concurrency", type=_levels, default=[1], metavar="1,4", help="requests at once (default: 1)")
    probe.add_argument("--n", type=_positive, help="requests for each workload and concurrency (default: 12, or 4 for each at once)")
    probe.add_argument("--max-tokens", type=_positive, default=128, help="of an answer (default: 128)")
    probe.add_argument("--temperature", type=float, default=0.0, help="default: 0")
    probe.add_argument("--seed", type=int, default=1, help="draws the prompts (default: 1)")
    probe.add_argument("--timeout", type=_positive, default=300, metavar="S", help="seconds that an answer may take (default: 300)")
    probe.add_argument("--api", choices=["chat", "completions", "llama"], help="default: llama-server's own, else chat")
    probe.add_argument("--model", help="where several are served")
    probe.add_argument("--api-key-env", metavar="VAR", help="environment variable that holds the key")
    probe.add_argument("--json", type=Path, dest="json_file", metavar="F", help="write everything to this file, for --compare")
    probe.add_argument(
        "--records", type=Path, metavar="F", help="write each request with all its arrivals, a JSON line each (without text)"
    )
    probe.add_argument("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="instead: two of these files side by side")
    probe.set_defaults(action=_probe)

    compare = actions.add_parser("compare", help="two results of probe side by side; no verdict")
    compare.add_argument("a", type=Path, metavar="A.json")
    compare.add_argument("b", type=Path, metavar="B.json")
    compare.set_defaults(action=lambda args: _compare(args.a, args.b))


def _levels(text: str) -> list[int]:
    try:
        levels = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list such as 1,4") from None
    if not all(1 <= level <= MOST_AT_ONCE for level in levels) or len(set(levels)) < len(levels):
        raise argparse.ArgumentTypeError(f"{text!r}: each is 1 to {MOST_AT_ONCE}, and none twice")
    return levels


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _probe(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    if args.compare:
        return _compare(*args.compare)
    if not args.url:
        raise SpecError("no server is named", remedy="specweb-agent probe http://127.0.0.1:8080")
    for file in filter(None, (args.json_file, args.records)):
        if not file.resolve().parent.is_dir():
            raise SpecError(f"{file}: there is no such folder", remedy="Make the folder first.")
        if file.is_dir():
            raise SpecError(f"{file} is a folder", remedy="Name a file in it.")
    if not 0 <= args.temperature <= 5:
        raise SpecError(f"--temperature {args.temperature:g}: it is 0 to 5", remedy="")
    if not 2 <= args.max_tokens <= _MOST_TOKENS:
        raise SpecError(f"--max-tokens {args.max_tokens}: it is 2 to {_MOST_TOKENS:,}", remedy="")
    asked = Asked(
        workloads=_workloads(args),
        concurrencies=args.concurrency,
        n=args.n,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        seed=args.seed,
        timeout_s=args.timeout,
    )
    headers = _headers(args.api_key_env)
    door, stop, line = Door(args.url, headers), threading.Event(), LiveLine()
    try:
        served = look(door, headers, api=args.api, model=args.model)
        with stopping(stop.set):
            done = survey(door, served, asked, stop, line.show)
    finally:
        line.clear()
        door.close()
    return _tell(done, args)


def _tell(done: Surveyed, args: argparse.Namespace) -> int:
    found = done.survey
    if found is not None:
        if args.json_file:
            evidence.write_json(args.json_file.resolve(), found)
        if args.records:
            evidence.write_lines(args.records.resolve(), [record for record, _ in done.records])
        print(survey_text.shown(found))
    if done.stopped:
        print("stopped; what stands above was measured whole" if found else "stopped before anything was measured whole")
        return INTERRUPTED
    return OK if found and any(cell.n_ok for cell in found.cells) else FAILED


def _workloads(args: argparse.Namespace) -> list[Workload]:
    known = builtin()
    if args.preset and args.workload:
        raise SpecError("--preset and --workload both name prompts", remedy="Give one of them.")
    names = args.workload or _DEFAULT_WORKLOADS
    if args.preset:
        names = [str(point["workload"]) for point in preset(args.preset).data["points"]]
    for name in names:
        if name not in known:
            raise SpecError(f"there is no workload {name!r}{nearest(name, known)}; known: {', '.join(sorted(known))}", remedy="")
        if known[name].is_task:
            raise SpecError(
                f"workload {name!r} holds tasks of several turns, and a probe asks single prompts",
                remedy="Run it as an experiment's point.",
            )
    return list({known[name].ref: known[name] for name in names}.values())


def _headers(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise SpecError(f"--api-key-env {variable}: the environment has no such variable, or it is empty", remedy=f"export {variable}=…")
    if not key.isascii() or not key.isprintable():
        raise SpecError(f"--api-key-env {variable}: its value holds characters that no key has", remedy="")
    return {"Authorization": f"Bearer {key}"}


def _compare(a: Path, b: Path) -> int:
    compared: list[ComparedCell] = compare_surveys(_read(a), _read(b))
    print(survey_text.compared(a.name, b.name, compared))
    return OK


def _read(path: Path) -> Survey:
    try:
        data = read_json(path)
    except OSError as error:
        raise SpecError(
            f"{path} can't be read: {error.strerror}", remedy="Name a file that `specweb-agent probe --json` has written."
        ) from error
    if not isinstance(data, dict) or data.get("kind") != "specweb-survey":
        raise SpecError(f"{path} is no result of specweb-agent probe", remedy="Make one with: specweb-agent probe URL --json FILE")
    try:
        return Survey.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SpecError(f"{path} can't be read: {where}: {first['msg']}", remedy="Was it made by another release? Probe again.") from error
