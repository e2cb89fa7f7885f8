"""Real rows of a few finished experiments, made once by the service itself: what a big database is then made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

#: Eight digits that stand in a template wherever the number of its copy goes: in UUIDs, in whole numbers and in text.
TOKEN = "77712345"
#: The day of every moment in a template; a copy gets its own.
DAY = "2026-11-29"
MOMENT = f"{DAY} 05:20:00+00"

#: Tables in the order of their references, each with the rows of experiment %(e)s, in SQL.
_JOBS = "SELECT id FROM experiments_job WHERE experiment_id = %(e)s"
_TRIALS = f"SELECT id FROM results_trial WHERE job_id IN ({_JOBS})"
_ATTEMPTS = f"SELECT id FROM results_attempt WHERE trial_id IN ({_TRIALS})"
_FILES = f"attempt_id IN ({_ATTEMPTS})"
TABLES: dict[str, str] = {
    "experiments_experiment": "id = %(e)s",
    "experiments_arm": "experiment_id = %(e)s",
    "experiments_point": "experiment_id = %(e)s",
    "experiments_job": "experiment_id = %(e)s",
    "experiments_jobmove": f"job_id IN ({_JOBS})",
    "experiments_lease": f"job_id IN ({_JOBS})",
    "results_trial": f"job_id IN ({_JOBS})",
    "results_attempt": f"trial_id IN ({_TRIALS})",
    "results_blob": f"sha256 IN (SELECT blob_id FROM results_evidencefile WHERE {_FILES})",
    "results_evidencefile": _FILES,
    "results_measurementset": _FILES,
    "results_probe": _FILES,
    "results_analysis": f"job_id IN ({_JOBS})",
    "results_comparison": f"job_id IN ({_JOBS})",
    "results_listing": "experiment_id = %(e)s",
}
#: Columns that hold the id of another table's row.
_REFERENCES = {
    "experiment_id": "experiments_experiment",
    "arm_id": "experiments_arm",
    "point_id": "experiments_point",
    "job_id": "experiments_job",
    "lease_id": "experiments_lease",
    "trial_id": "results_trial",
    "attempt_id": "results_attempt",
    "blob_id": "results_blob",
    "measurement_id": "results_measurementset",
    "analysis_id": "results_analysis",
    "comparison_id": "results_comparison",
}
#: Hashes that are unique, and so are each copy's own.
_HASHES = {"token_hash", "spec_hash"}
_MOMENT = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00")


@dataclass(frozen=True)
class Part:
    """Rows of one table, each a list of fields as COPY writes them."""

    table: str
    columns: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        return "".join("\t".join(row) + "\n" for row in self.rows)


@dataclass(frozen=True)
class Template:
    """One experiment, in the order of :data:`TABLES`."""

    parts: list[Part]

    def part(self, table: str) -> Part:
        return next(p for p in self.parts if p.table == table)

    @property
    def n_attempts(self) -> int:
        return len(self.part("results_attempt").rows)


#: Evidence files of an attempt that are copied; the others are as many again and asked for in the same ways.
FILES = ("records.jsonl", "server.log", "launch.json")
#: Of each kind: arms beside the baseline, whether one start fails. All have 5 arms in 10 blocks: 50 starts with 3 timed requests
#: and one to warm up.
VARIANTS: tuple[tuple[str, list[dict[str, Any]], bool], ...] = (
    (
        "draft limits",
        [{"name": f"draft-{n}", "mode": "draft", "draft_model": "demo-draft", "draft_limit": n} for n in (2, 4, 8, 16)],
        False,
    ),
    (
        "a draft or n-grams",
        [
            {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3},
            {"name": "draft-8", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 8},
            {"name": "ngram-simple", "mode": "ngram-simple"},
            {"name": "off-again", "mode": "off", "control": True},
        ],
        True,
    ),
)
POINTS: tuple[list[dict[str, Any]], ...] = (
    [{"workload": "python-code", "max_tokens": 64, "probes": 2}, {"workload": "free-text", "max_tokens": 64, "probes": 1}],
    [{"workload": "count", "max_tokens": 64, "probes": 2}, {"workload": "python-code", "max_tokens": 128, "probes": 1}],
)


def templates() -> list[Template]:
    """Runs each kind of experiment through the services, reads its rows and takes them out again; their evidence files stay."""
    from specweb.accounts.models import Membership, Role, Team, User
    from tests.web import sample  # streams made up, everything after them real

    seed_workloads()
    team, user = Team.objects.create(slug="template", name="Template"), User.objects.create_user("template")
    Membership.objects.create(user=user, team=team, role=Role.MAINTAINER)
    found = []
    for (name, arms, fails), points in zip(VARIANTS, POINTS, strict=True):
        of_all = {"name": name, "points": points, "blocks": 10, "warmup": {"mode": "fixed", "requests": 1}}
        spec = sample.spec(**of_all, arms=[{"name": "off", "mode": "off"}, *arms])
        lost = (spec.arms[-1].name, 3) if fails else None
        run = sample.finished(team, user, spec, fails=lambda trial, lost=lost: (trial.arm, trial.block) == lost)
        found.append(_read(run.experiment.pk))
    return found


def seed_workloads() -> None:
    """Those that come with SpecWeb, under the same numbers in each new database, as the templates' points name them."""
    from speccore import workloads

    from specweb.experiments.services.submission import seed_workload

    for workload in {w.content_hash(): w for w in workloads.builtin().values()}.values():
        seed_workload(workload)


def _read(experiment_id: UUID) -> Template:
    """An experiment's rows with the token in their ids. They are deleted from the database, so that only copies stay."""
    from django.db import connection, transaction

    parts = []
    with transaction.atomic(), connection.cursor() as cursor:
        for table, where in TABLES.items():
            columns = _columns(cursor, table)
            condition = where.replace("%(e)s", f"'{experiment_id}'")
            listed = ", ".join(f'"{c}"' for c in columns)
            with cursor.copy(f"COPY (SELECT {listed} FROM {table} WHERE {condition}) TO STDOUT") as copy:
                lines = b"".join(bytes(block) for block in copy).decode().splitlines()
            parts.append(Part(table, columns, [line.split("\t") for line in lines]))
        for table in reversed(TABLES):
            if table == "results_attempt":
                cursor.execute(f"UPDATE results_attempt SET measurement_id = NULL WHERE {TABLES[table]}", {"e": str(experiment_id)})
            if table == "results_blob":
                hashes = [row[0] for row in next(p for p in parts if p.table == table).rows]
                cursor.execute("DELETE FROM results_blob_teams WHERE blob_id = ANY(%s)", [hashes])
                cursor.execute("DELETE FROM results_blob WHERE sha256 = ANY(%s)", [hashes])
            else:
                cursor.execute(f"DELETE FROM {table} WHERE {TABLES[table]}", {"e": str(experiment_id)})
    return _tokened(_with_files(parts))


def _with_files(parts: Sequence[Part]) -> list[Part]:
    """Of the evidence only :data:`FILES`."""
    by_name = {p.table: p for p in parts}
    files, blobs = by_name["results_evidencefile"], by_name["results_blob"]
    name, blob, key = files.columns.index("name"), files.columns.index("blob_id"), blobs.columns.index("sha256")
    kept = [row for row in files.rows if row[name] in FILES]
    wanted = {row[blob] for row in kept}
    changed_ = {files.table: kept, blobs.table: [row for row in blobs.rows if row[key] in wanted]}
    return [replace(p, rows=changed_.get(p.table, p.rows)) for p in parts]


def _columns(cursor: Any, table: str) -> list[str]:
    cursor.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position",
        [table],
    )
    return [name for (name,) in cursor.fetchall()]


def _tokened(parts: Sequence[Part]) -> Template:
    """Every id of the rows, wherever it stands, is one that the copy's number makes unique; every moment is of one day."""
    assert not any(TOKEN in field for p in parts for row in p.rows for field in row), "the token stands in real data: choose another"
    ids: dict[str, dict[str, str]] = {}
    everywhere: dict[str, str] = {}
    for place, part in enumerate(parts):
        key = "sha256" if part.table == "results_blob" else "comparison_id" if part.table == "results_listing" else "id"
        if part.table == "results_listing":
            continue
        at = part.columns.index(key)
        old = [row[at] for row in part.rows]
        new = [_id(value, 10_000 * place + i) for i, value in enumerate(old)]
        ids[part.table] = dict(zip(old, new, strict=True))
        if key == "id" and old and "-" in old[0]:
            everywhere |= ids[part.table]
    found = re.compile("|".join(map(re.escape, everywhere)))
    return Template([_tokened_part(p, ids, everywhere, found) for p in parts])


def _id(old: str, n: int) -> str:
    if len(old) == 64:
        return f"{TOKEN}{n:08d}{old[16:]}"
    return f"{TOKEN}-0000-7000-8000-{n:012d}" if "-" in old else f"1{TOKEN}{n:06d}"


def _tokened_part(part: Part, ids: Mapping[str, Mapping[str, str]], everywhere: Mapping[str, str], known: re.Pattern[str]) -> Part:
    rows = []
    for row in part.rows:
        fields = []
        for column, value in zip(part.columns, row, strict=True):
            owner = part.table if column in ("id", "sha256") else _REFERENCES.get(column)
            if owner in ids and value in ids[owner]:
                value = ids[owner][value]
            elif column in _HASHES:
                value = f"{TOKEN}{value[8:]}"
            elif _MOMENT.fullmatch(value):
                value = value if value.startswith(DAY) else MOMENT
            else:
                value = known.sub(lambda m: everywhere[m[0]], value)
            fields.append(value)
        rows.append(fields)
    return replace(part, rows=rows)


def changed(part: Part, values: Iterable[Mapping[str, str]]) -> Part:
    """With other values in some columns, row by row; a column that the table hasn't is passed over."""
    places = {name: i for i, name in enumerate(part.columns)}
    rows = []
    for row, new in zip(part.rows, values, strict=True):
        fields = list(row)
        for name, value in new.items():
            if name in places:
                fields[places[name]] = value
        rows.append(fields)
    return replace(part, rows=rows)
