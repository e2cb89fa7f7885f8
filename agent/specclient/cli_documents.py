"""``reproduce``, ``report``, ``workloads``, ``reported``: files that go and come."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from speccore.importers.places import MAX_BYTES as MAX_REPORT
from speccore.prompt_file import MAX_BYTES as MAX_PROMPTS
from speccore.yamltext import data_to_yaml, read_yaml

from .cli_base import STDIN, Call, add, content_of, count, job_named, written_to
from .cli_experiments import VISIBILITIES, add_submission_options, checked_here, submit_text
from .cli_reading import table
from .client import read_file
from .errors import BadInput
from .gate import BAD_INPUT, OK
from .screen import safe
from .tables import REPORTS, WORKLOADS, report_cells, workload_cells

_MAX_MAPPING = 256 * 1024


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    reproduce = add(
        actions,
        "reproduce",
        _reproduce,
        "ask again what a job asked, pinned to what it ran with",
        common,
        "Writes the experiment of a job with its models by hash, prompts by version and the engine's build; with --on or --submit it is "
        "submitted.",
    )
    reproduce.add_argument("id", metavar="ID", help="of the job, or of an experiment with one job")
    reproduce.add_argument("--on", metavar="HOST", action="append", default=[], help="submit it, to run on this host; may be repeated")
    reproduce.add_argument("--submit", action="store_true", help="submit it, to run wherever it can")
    reproduce.add_argument("-o", "--out", type=Path, metavar="FILE", help="write it to a file instead of standard output")
    add_submission_options(reproduce)
    report = add(actions, "report", _report, "write an answered job as Markdown, for an issue or a pull request", common)
    report.add_argument("id", metavar="ID", help="of the job, or of an experiment with one job")
    report.add_argument("-o", "--out", type=Path, metavar="FILE", help="write it to a file instead of standard output")
    _add_workloads(actions, common)
    _add_reported(actions, common)


def _add_workloads(actions: Any, common: argparse.ArgumentParser) -> None:
    workloads = actions.add_parser(
        "workloads", help="list workloads, or upload prompts of your own", description="Kinds of work: prompts with versions."
    )
    inner = workloads.add_subparsers(title="actions", required=True, metavar="ACTION")
    listed = add(inner, "list", _workloads, "list built-in workloads and those of your teams", common)
    listed.add_argument("--team", default="", metavar="TEAM", help="of this team")
    push = add(inner, "push", _push_workload, "upload prompts as a workload, or as the next version of one", common)
    push.add_argument("file", type=Path, metavar="FILE", help="one JSON object a line; - for standard input")
    push.add_argument("--name", default="", metavar="NAME", help="(default: the file's name without its ending)")
    push.add_argument("--title", default="", metavar="TEXT", help="what it is called on pages")
    push.add_argument("--description", default="", metavar="TEXT", help="what it is for")
    push.add_argument("--team", default="", metavar="TEAM", help="where you may submit for several")
    push.add_argument("--share", action="store_true", help="let the team use it at once; else it is yours alone until you share it")


def _add_reported(actions: Any, common: argparse.ArgumentParser) -> None:
    reported = actions.add_parser(
        "reported", help="list or upload results of other tools", description="Results of other tools: reported, not verified."
    )
    inner = reported.add_subparsers(title="actions", required=True, metavar="ACTION")
    listed = add(inner, "list", _reports, "list what other tools report, the newest first", common)
    for name in ("tool", "team", "model", "hardware"):
        listed.add_argument(f"--{name}", default="", metavar=name.upper())
    listed.add_argument("--limit", type=count, default=50, metavar="N", help="at most so many (default: 50)")
    push = add(inner, "push", _push_report, "upload a result file of another tool, or a table", common)
    push.add_argument("file", type=Path, metavar="FILE", help="as the tool wrote it; - for standard input")
    push.add_argument("--tool", default="", metavar="TOOL", help="(default: the one that the file looks like)")
    push.add_argument("--mapping", type=Path, metavar="FILE", help="JSON that says what a table's columns are")
    push.add_argument("--template", default="", metavar="NAME", help="a kept mapping of the team")
    push.add_argument("--keep-as", default="", metavar="NAME", help="keep the mapping under this name")
    push.add_argument("--title", default="", metavar="TEXT", help="what it is called on pages")
    push.add_argument("--source-url", default="", metavar="ADDRESS", help="the page that it is from")
    push.add_argument("--notes", default="", metavar="TEXT", help="what else is to be known")
    push.add_argument("--public-table", action="store_true", help="rows of a public table that others measured; wants --source-url")
    push.add_argument("--team", default="", metavar="TEAM", help="where you may submit for several")
    push.add_argument("--visibility", choices=VISIBILITIES, default="", help="who may read it (default: the team)")


def _reproduce(call: Call) -> int:
    args = call.args
    named = job_named(call.client, args.id)
    text = call.client.job_spec(named.job)
    if args.on:
        data = read_yaml(text.encode())
        if not isinstance(data, dict):
            raise BadInput("what the job asked can't be read here", remedy="Bring specweb to the service's release.")
        text = data_to_yaml({**data, "placement": {"hosts": args.on}})
    if args.on or args.submit:
        if args.out:
            raise BadInput("--out writes it, --on and --submit submit it", remedy="Leave out one of them.")
        spec = checked_here(call, text.encode(), f"what job {named.job} asked")
        return BAD_INPUT if spec is None else submit_text(call, text.encode(), spec)
    if args.watch:
        raise BadInput("--watch watches what is submitted", remedy="Add --on HOST or --submit.")
    if call.json:
        call.screen.json({"job": named.job, "spec": read_yaml(text.encode())})
        return OK
    with written_to(args.out, call.screen) as to:
        to.write(text.encode())
    return OK


def _report(call: Call) -> int:
    named = job_named(call.client, call.args.id)
    text = call.client.report(named.job)
    if call.json:
        call.screen.json({"job": named.job, "markdown": text})
        return OK
    with written_to(call.args.out, call.screen) as to:
        to.write(text.encode())
    return OK


def _workloads(call: Call) -> int:
    found = call.client.workloads(team=call.args.team)
    if call.json:
        call.screen.json({"workloads": [w.raw for w in found]})
    else:
        table(call, WORKLOADS, [workload_cells(w) for w in found], "no workload")
    return OK


def _push_workload(call: Call) -> int:
    a = call.args
    name = a.name or ("" if a.file == STDIN else a.file.stem)
    if not name:
        raise BadInput("the workload has no name", remedy="Give --name NAME.")
    content = content_of(a.file, MAX_PROMPTS)
    made = call.client.push_workload(content, name, share=a.share, team=a.team, title=a.title, description=a.description)
    _warn(call, made.warnings)
    if call.json:
        call.screen.json(made.raw)
    else:
        call.screen.print(safe(f"{made.ref}: {made.n_items} prompts, {'yours alone' if made.private else 'for the team'}"))
        call.screen.print(safe(made.url))
    return OK


def _reports(call: Call) -> int:
    a = call.args
    found = call.client.reports(tool=a.tool, team=a.team, model=a.model, hardware=a.hardware, limit=min(a.limit, 200))
    rows = list(itertools.islice(found, a.limit))
    if call.json:
        call.screen.json({"reports": [r.raw for r in rows]})
    else:
        table(call, REPORTS, [report_cells(r) for r in rows], "nothing that you may read fits")
    return OK


def _push_report(call: Call) -> int:
    a = call.args
    content = content_of(a.file, MAX_REPORT)
    mapping = read_file(a.mapping, _MAX_MAPPING).decode("utf-8", "replace") if a.mapping else ""
    about = {name: getattr(a, name) for name in ("tool", "title", "source_url", "notes", "template", "keep_as", "team", "visibility")}
    name = "standard-input" if a.file == STDIN else a.file.name
    made = call.client.push_report(content, name, mapping=mapping, public_table="yes" if a.public_table else "", **about)
    _warn(call, made.warnings)
    if call.json:
        call.screen.json(made.raw)
    else:
        call.screen.print(safe(f"{made.title}: {made.n_runs} runs of {made.tool_name}, {made.mark}"))
        call.screen.print(safe(made.url))
    return OK


def _warn(call: Call, warnings: list[str]) -> None:
    for words in warnings:
        call.screen.note(f"note: {safe(words)}")
