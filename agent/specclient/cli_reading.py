"""``list``, ``show``, ``compare``, ``hosts``, ``open``: what is there, as tables or as the API's JSON."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import webbrowser
from typing import Any

from .cli_base import Call, add, count, id_in
from .cli_experiments import tell_comparisons
from .gate import OK
from .screen import safe
from .tables import EXPERIMENTS, HOSTS, ROWS, experiment_cells, host_cells, job_line, row_cells

COMPARED_BY = {
    "target": "target model, as a host calls it",
    "engine": "engine",
    "work": "workload with its version, such as count@2",
    "concurrency": "requests at once",
    "context": "occupied tokens of context",
    "hardware": "as results name it",
    "mode": "speculation mode, such as draft",
}


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    listed = add(actions, "list", _list, "list experiments, the newest first", common)
    for name, text in (
        ("team", "of this team"),
        ("state", "in this state"),
        ("q", "with this in name or question"),
        ("by", "of this person"),
        ("host", "with a job on this host"),
    ):
        listed.add_argument(f"--{name}", default="", metavar=name.upper(), help=text)
    listed.add_argument("--limit", type=count, default=20, metavar="N", help="at most so many (default: 20)")
    show = add(actions, "show", _show, "tell all of an experiment: jobs, verdicts, numbers", common)
    show.add_argument("id", metavar="ID", help="of the experiment, or its page's address")
    compare = add(actions, "compare", _compare, "finished ratios across hardware, as the Compare page has them", common)
    for name, text in COMPARED_BY.items():
        kind: Any = {"type": count} if name == "concurrency" else {}
        compare.add_argument(f"--{name}", default=None, metavar=name.upper(), help=text, **kind)
    compare.add_argument("--limit", type=count, default=None, metavar="N", help="at most so many rows (default: all)")
    hosts = add(actions, "hosts", _hosts, "list the hosts of your teams with what they offer", common)
    hosts.add_argument("--team", default="", metavar="TEAM", help="of this team")
    opened = add(actions, "open", _open, "open an experiment in the browser, or print its address", common)
    opened.add_argument("id", metavar="ID", help="of the experiment")
    opened.add_argument("--print", action="store_true", help="only print it")


def _list(call: Call) -> int:
    a = call.args
    found = call.client.experiments(team=a.team, state=a.state, q=a.q, by=a.by, host=a.host, limit=min(a.limit, 200))
    rows = list(itertools.islice(found, a.limit))
    if call.json:
        call.screen.json({"experiments": [e.raw for e in rows]})
    else:
        table(call, EXPERIMENTS, [experiment_cells(e) for e in rows], "no experiment that you may read fits")
    return OK


def _show(call: Call) -> int:
    found = call.client.experiment(id_in(call.args.id))
    if call.json:
        call.screen.json(found.raw)
        return OK
    screen = call.screen
    screen.print(safe(found.name))
    if found.question:
        screen.print(safe(found.question))
    by = f" by {found.created_by}" if found.created_by else ""
    own = " · self-run: measured without the service" if found.origin == "self_run" else ""
    screen.print(safe(f"{found.team} · {found.visibility} · submitted {found.created_at:%Y-%m-%d %H:%M} UTC{by}{own}"))
    for job in found.jobs:
        again = " · was tried again" if job not in found.current_jobs else ""
        screen.print(safe(f"job {job.id}: {job_line(job)}{again}"))
    screen.print()
    tell_comparisons(call, found)
    for c in (c for c in found.comparisons if c.mode != "off"):
        step = f" Next: {c.verdict.next_step}." if c.verdict.next_step else ""
        screen.print(screen.painted(c.verdict.word) + safe(f": {c.arm} at {c.point}: {c.verdict.sentence}.{step}"))
    if not found.comparisons:
        screen.print("no comparison yet")
    screen.print(safe(found.url))
    return OK


def _compare(call: Call) -> int:
    a = call.args
    chosen = {name: getattr(a, name) for name in COMPARED_BY if getattr(a, name) is not None}
    if a.limit:
        chosen["limit"] = min(a.limit, 200)
    rows = list(itertools.islice(call.client.compare(**chosen), a.limit))
    if call.json:
        call.screen.json({"rows": [r.raw for r in rows]})
    else:
        table(call, ROWS, [row_cells(r) for r in rows], "no finished comparison fits")
    return OK


def _hosts(call: Call) -> int:
    found = call.client.hosts(team=call.args.team)
    if call.json:
        call.screen.json({"hosts": [h.raw for h in found]})
        return OK
    table(call, HOSTS, [host_cells(h) for h in found], "no host: a maintainer adds one on the Hosts page")
    for host in found:
        if host.problem:
            call.screen.note(safe(f"{host.name}: {host.problem.get('message', '')} {host.problem.get('remedy', '')}"))
    return OK


def _open(call: Call) -> int:
    found = call.client.experiment(id_in(call.args.id))
    if call.json:
        call.screen.json({"url": found.url})
        return OK
    call.screen.print(safe(found.url))
    shown = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER") or sys.platform == "darwin")
    if call.screen.out_is_tty and shown and not call.args.print and found.url.startswith(("http://", "https://")):
        webbrowser.open(found.url)
    return OK


def table(call: Call, columns: Any, rows: list[tuple[str, ...]], nothing: str) -> None:
    """The rows, or in words on standard error that there is none."""
    if rows:
        call.screen.table(columns, rows)
    else:
        call.screen.note(nothing)
