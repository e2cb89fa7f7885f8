"""``export`` and ``import``: tables and whole experiments as files, as they come from a service and go to another."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from .cli_base import STDIN, Call, add, id_in, span, written_to
from .cli_experiments import VISIBILITIES
from .errors import BadInput
from .gate import OK, OTHERWISE, TIMED_OUT
from .screen import Screen, safe

TABLES = ("comparisons", "experiments", "attempts", "probes", "numbers", "evidence", "hosts", "workloads", "reported", "audit")
FORMATS = ("csv", "json", "jsonl", "parquet")


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    export = add(
        actions,
        "export",
        _export,
        "write a table as CSV, JSON or Parquet, or a whole experiment as an archive",
        common,
        f"WHAT is a table ({', '.join(TABLES)}), or the id of an experiment: then an archive with its definition, evidence, numbers and "
        "hashes is written, which another service takes back.",
    )
    export.add_argument("what", metavar="WHAT", help="a table, or the id of an experiment")
    export.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="write it to a file, whole or not at all, instead of standard output"
    )
    export.add_argument("--format", choices=FORMATS, default="", help="of a table (default: by the ending of FILE, else csv)")
    export.add_argument(
        "--where", action="append", default=[], metavar="NAME=VALUE", help="narrow a table, as the API does; may be repeated"
    )
    taken = add(
        actions,
        "import",
        _import,
        "import an experiment's archive that another service made",
        common,
        "The service checks every hash of the archive and computes the numbers again from its evidence; where they differ from the "
        "archive's, they are told, and the exit code is 10.",
    )
    taken.add_argument("archive", type=Path, metavar="ARCHIVE", help="as specweb export ID wrote it")
    taken.add_argument("--team", default="", metavar="TEAM", help="where you may submit for several")
    taken.add_argument("--visibility", choices=VISIBILITIES, default="", help="who may read it (default: the team)")
    taken.add_argument("--timeout", type=span, default=600.0, metavar="TIME", help="wait so long for the numbers (default: 10m)")


def _export(call: Call) -> int:
    args = call.args
    if args.what in TABLES:
        path, query, kind = f"exports/{args.what}", _filters(args.where), _format(args.format, args.out)
        query["format"] = kind
    else:
        if args.where or args.format:
            raise BadInput("--where and --format are for tables", remedy=f"Tables: {', '.join(TABLES)}.")
        path, query, kind = f"experiments/{id_in(args.what)}/archive", {}, "zip"
    if kind in ("parquet", "zip") and call.screen.out_is_tty and args.out in (None, STDIN):
        raise BadInput(f"a file of type {kind} is nothing for a terminal", remedy=f"Add -o FILE.{kind}, or send it on.")
    with written_to(args.out, call.screen) as to:
        n_bytes = call.client.download(path, to, **query)
    _tell(call.screen, args.out, n_bytes, as_json=call.json)
    return OK


def _import(call: Call) -> int:
    args, screen = call.args, call.screen
    if not args.archive.is_file():
        raise BadInput(f"{args.archive} is no file")
    taken = call.client.import_archive(args.archive, team=args.team, visibility=args.visibility)
    screen.note(f"{'imported' if taken.created else 'was imported before'}: {taken.experiment}")
    found, ends = call.client.imported(taken.experiment), time.monotonic() + args.timeout
    while found.pending and time.monotonic() < ends:
        screen.show("the numbers are being computed from the evidence")
        time.sleep(1)
        found = call.client.imported(taken.experiment)
    code = TIMED_OUT if found.pending else OK if found.same else OTHERWISE
    if call.json:
        screen.json(taken.raw | {"import": found.raw})
        return code
    if found.pending:
        screen.print("the numbers are not computed yet: its page tells when they are")
    elif found.same:
        screen.print("the numbers computed here are those of the archive")
    else:
        screen.print(f"{found.n_differences} numbers computed here are not those of the archive:")
    for d in found.differences:
        place = " at ".join(p for p in (d.arm, d.point) if p)
        screen.print(
            safe(f"  {place}: {d.what}: {d.there} there, {d.here} here" if place else f"  {d.what}: {d.there} there, {d.here} here")
        )
    screen.print(safe(taken.url))
    return code


def _tell(screen: Screen, out: Path | None, n_bytes: int, *, as_json: bool) -> None:
    if out in (None, STDIN):
        return
    if as_json:
        screen.json({"file": str(out), "bytes": n_bytes})
    else:
        screen.note(f"{out}: {n_bytes:,} bytes")


def _filters(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or not name or name == "format":
            raise BadInput(f"--where {entry[:60]!r} is no NAME=VALUE")
        found[name] = value
    return found


def _format(given: str, out: Path | None) -> str:
    by_name = out.suffix.lstrip(".").lower() if out else ""
    return given or (by_name if by_name in FORMATS else "csv")
