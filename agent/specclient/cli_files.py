"""``export``: tables and whole experiments as files, as they come from the service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .cli_base import STDIN, Call, add, id_in, written_to
from .errors import BadInput
from .gate import OK
from .screen import Screen

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
