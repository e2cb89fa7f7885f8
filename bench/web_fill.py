"""A database as a busy service has it after years: copies of a few real experiments, spread over teams, hosts, builds and models."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg

from bench.web_template import DAY, TABLES, TOKEN, Part, Template, changed

N_TEAMS, HOSTS_PER_TEAM, N_BUILDS, N_MODELS = 20, 3, 10, 24
CARDS = (
    *("GeForce GTX 1080 Ti", "GeForce RTX 2080 Ti", "GeForce RTX 3060", "GeForce RTX 3090", "GeForce RTX 4070", "GeForce RTX 4090"),
    *("GeForce RTX 5090", "RTX A6000", "Tesla P40", "A100-SXM4-80GB", "H100-SXM5-80GB", "Radeon RX 7900 XTX", "Radeon VII"),
    *("Arc A770", "Apple M2 Max", "Tesla V100-32GB"),
)
#: The reader of the pages belongs to so many of the teams.
TEAMS_OF_READER = 2
READER = "reader"
#: So many of the newest experiments still run.
N_RUNNING = 6
#: Of how many days the experiments are.
DAYS = 700
#: Large values that copies share as the database has compressed them once: parsing and compressing each would take an hour.
SHARED = {"results_measurementset": "numbers", "results_analysis": "numbers", "results_comparison": "numbers", "experiments_job": "plan"}
CHUNK = 100


@dataclass(frozen=True)
class Offer:
    """A host with what its inventory offers, as rows refer to it."""

    host: str
    inventory: str
    hardware: str
    driver: str
    runtimes: list[tuple[int, str, str, str]]  # id, manifest hash, version, backend
    models: list[tuple[int, str, str]]  # id, manifest hash, alias


@dataclass(frozen=True)
class World:
    teams: list[tuple[int, int, list[Offer]]]  # id, a member, hosts
    reader: int


def world(seed: int) -> World:
    """Teams, people, hosts and what these offer, stored by the services that do so in production."""
    from speccore.inventory import Device

    from specweb.accounts.models import Membership, Role, Team, User
    from specweb.experiments.models import Host
    from specweb.experiments.services.hosts import create_host, store_inventory
    from tests.web import sample

    rng, now = random.Random(seed), datetime.now(UTC)
    reader = User.objects.create_user(READER)
    pattern = sample.host_with_inventory(Team.objects.create(slug="pattern", name="Pattern"))
    assert pattern.inventory is not None
    told = pattern.inventory.parsed
    builds = [
        told.runtimes[0].model_copy(
            update={"version": f"b{9000 + 150 * i}", "manifest_hash": _hash("build", i), "backend": ("cuda", "vulkan", "rocm")[i % 3]}
        )
        for i in range(N_BUILDS)
    ]
    models = [
        told.models[i % 2].model_copy(update={"alias": f"model-{i:02d}-{('8b', '32b')[i % 2]}", "manifest_hash": _hash("model", i)})
        for i in range(N_MODELS)
    ]
    Host.objects.filter(pk=pattern.pk).update(revoked_at=now)
    teams = []
    for t in range(N_TEAMS):
        team, member = Team.objects.create(slug=f"team-{t}", name=f"Team {t}"), User.objects.create_user(f"member-{t}")
        for user in (member, *([reader] if t < TEAMS_OF_READER else [])):
            Membership.objects.create(user=user, team=team, role=Role.MAINTAINER)
        offers = []
        for h in range(HOSTS_PER_TEAM):
            card = rng.choice(CARDS)
            device = Device(uuid=f"gpu-{t}-{h}", kind="gpu", name=card, memory_bytes=24 * 2**30, driver=f"{550 + rng.randrange(30)}.54")
            here = {"devices": [device], "hostname": f"host-{t}-{h}", "boot_id": f"boot-{t}-{h}"}
            here |= {"runtimes": rng.sample(builds, 3), "models": rng.sample(models, 8)}
            host, _ = create_host(team, f"host-{t}-{h}")
            row = store_inventory(host, told.model_copy(update=here), now)
            Host.objects.filter(pk=host.pk).update(last_seen_at=now)
            offers.append(_offer(str(host.pk), row))
        teams.append((team.pk, member.pk, offers))
    return World(teams, reader.pk)


def _offer(host: str, row: Any) -> Offer:
    from specweb.experiments.models import Model, Runtime

    told = row.parsed
    builds = Runtime.objects.filter(manifest_hash__in=[r.manifest_hash for r in told.runtimes]).order_by("pk")
    known = {m.manifest_hash: m.pk for m in Model.objects.all()}
    return Offer(
        host=host,
        inventory=str(row.pk),
        hardware=row.hardware,
        driver=told.driver(),
        runtimes=[(r.pk, r.manifest_hash, r.version, r.backend) for r in builds],
        models=[(known[m.manifest_hash], m.manifest_hash, m.alias) for m in told.models],
    )


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Copy:
    """Where and when one experiment was run."""

    k: int
    template: Template
    team: int
    member: int
    visibility: str
    offer: Offer
    runtime: tuple[int, str, str, str]
    model: tuple[int, str, str]
    day: str
    running: bool


def copies(world: World, templates: list[Template], n: int, seed: int) -> Iterator[Copy]:
    """``n`` experiments, the oldest first."""
    last = date.fromisoformat(DAY)
    for k in range(n):
        rng = random.Random(f"{seed}/{k}")
        team, member, offers = world.teams[rng.randrange(len(world.teams))]
        offer = rng.choice(offers)
        yield Copy(
            k=k,
            template=templates[k % len(templates)],
            team=team,
            member=member,
            visibility=rng.choices(("public", "team", "private"), (30, 65, 5))[0],
            offer=offer,
            runtime=rng.choice(offer.runtimes),
            model=rng.choice(offer.models),
            day=str(last - timedelta(days=math.floor(DAYS * (1 - k / n)))),
            running=k >= n - N_RUNNING,
        )


def fill(database_url: str, world: World, templates: list[Template], n_experiments: int, seed: int, told: Callable[[str], None]) -> None:
    """Copies experiments into an empty database, two tables at a time; indexes are made after the rows, as a restore does."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        later = [statement for table in TABLES for statement in _without_indexes(connection, table)]
        _share(connection, templates)
        connection.execute("SET session_replication_role = replica")
    plan = list(copies(world, templates, n_experiments, seed))
    order = ["results_measurementset", "results_probe", *(t for t in TABLES if t not in ("results_measurementset", "results_probe"))]
    with ThreadPoolExecutor(2) as pool:
        for table in pool.map(lambda t: _copy_table(database_url, t, plan, templates, seed), order):
            told(f"{table} filled")
        list(pool.map(lambda s: _run(database_url, s), later))
        told("indexes made")
        list(pool.map(lambda t: _run(database_url, f"VACUUM ANALYZE {t}"), TABLES))
    told("read through for the planner")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP TABLE bench_shared")
        connection.execute("SELECT results_tally_anew()")
        connection.execute("ANALYZE")


def _run(database_url: str, statement: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute(statement)


def _without_indexes(connection: psycopg.Connection[Any], table: str) -> list[str]:
    """Drops a table's indexes but that of its key, and returns how they are made again."""
    again = []
    unique = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'u'"
    for name, definition in connection.execute(unique, [table]).fetchall():
        connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        again.append(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}')
    indexes = (
        "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s::regclass AND NOT indisprimary"
    )
    for name, definition in connection.execute(indexes, [table]).fetchall():
        connection.execute(f"DROP INDEX {name}")
        again.append(definition)
    return again


def _share(connection: psycopg.Connection[Any], templates: list[Template]) -> None:
    connection.execute("CREATE TABLE bench_shared (of text, template int, row int, value jsonb, PRIMARY KEY (of, template, row))")
    with connection.cursor().copy("COPY bench_shared FROM STDIN") as copy:
        for table, column in SHARED.items():
            for t, template in enumerate(templates):
                part = template.part(table)
                for i, row in enumerate(part.rows):
                    copy.write(f"{table}\t{t}\t{i}\t{row[part.columns.index(column)]}\n")


def _copy_table(database_url: str, table: str, plan: list[Copy], templates: list[Template], seed: int) -> str:
    shared = SHARED.get(table)
    columns = templates[0].part(table).columns
    if shared is None:
        into, listed = table, columns
    else:
        into, listed = f"bench_{table}", [*(c for c in columns if c != shared), "bench_template", "bench_row"]
    named = ", ".join(f'"{c}"' for c in listed)
    with psycopg.connect(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        if shared is not None:
            cursor.execute(f"CREATE TEMP TABLE {into} AS SELECT * FROM {table} LIMIT 0")
            cursor.execute(f"ALTER TABLE {into} DROP COLUMN {shared}, ADD bench_template int, ADD bench_row int")
        with cursor.copy(f"COPY {into} ({named}) FROM STDIN") as copy:
            texts = _texts(table, plan, templates, seed)
            for text in texts:
                copy.write(text)
        if shared is not None:
            _with_shared(cursor, table, into, columns, shared)
        if "id" in columns and not templates[0].part(table).rows[0][columns.index("id")].count("-"):
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
    return table


def _with_shared(cursor: Any, table: str, staged: str, columns: list[str], shared: str) -> None:
    named = ", ".join(f'"{c}"' for c in columns)
    taken = ", ".join("v.value" if c == shared else f's."{c}"' for c in columns)
    cursor.execute(
        f"INSERT INTO {table} ({named}) SELECT {taken} FROM {staged} s"
        f" JOIN bench_shared v ON v.of = '{table}' AND v.template = s.bench_template AND v.row = s.bench_row"
    )
    cursor.execute(f"DROP TABLE {staged}")


def _texts(table: str, plan: list[Copy], templates: list[Template], seed: int) -> Iterator[str]:
    """What COPY reads, a hundred experiments at a time."""
    parts = {id(t): _staged(t.part(table), n) for n, t in enumerate(templates)}
    same = {key: part.text() for key, part in parts.items()}
    own = _OWN.get(table)
    for start in range(0, len(plan), CHUNK):
        found = []
        for copy in plan[start : start + CHUNK]:
            part = parts[id(copy.template)]
            text = changed(part, own(copy, part, seed)).text() if own else same[id(copy.template)]
            found.append(text.replace(TOKEN, f"{copy.k:08d}").replace(DAY, copy.day))
        yield "".join(found)


def _staged(part: Part, template: int) -> Part:
    shared = SHARED.get(part.table)
    if shared is None:
        return part
    at = part.columns.index(shared)
    rows = [[*row[:at], *row[at + 1 :], str(template), str(i)] for i, row in enumerate(part.rows)]
    return Part(part.table, [*part.columns[:at], *part.columns[at + 1 :], "bench_template", "bench_row"], rows)


def _experiment(copy: Copy, part: Part, seed: int) -> Iterator[dict[str, str]]:
    name = f"{copy.model[2]} on {copy.offer.hardware}"[:120]
    yield {
        "team_id": str(copy.team),
        "created_by_id": str(copy.member),
        "visibility": copy.visibility,
        "name": name,
        "question": f"Does it pay for {name}, run {copy.k}?",
    }


def _job(copy: Copy, part: Part, seed: int) -> Iterator[dict[str, str]]:
    values = {
        "host_id": copy.offer.host,
        "inventory_id": copy.offer.inventory,
        "runtime_id": str(copy.runtime[0]),
        "target_id": str(copy.model[0]),
    }
    if copy.running:
        values |= {"state": "running", "completed_at": "\\N", "processed_at": "\\N"}
    yield values


def _lease(copy: Copy, part: Part, seed: int) -> Iterator[dict[str, str]]:
    yield {"host_id": copy.offer.host, "inventory_id": copy.offer.inventory}


def _comparisons(copy: Copy, part: Part, seed: int) -> Iterator[dict[str, str]]:
    """The template's ratios moved by what differs between machines; a verdict that judges a ratio follows it."""
    rng = random.Random(f"{seed}/{copy.k}/ratios")
    at = {name: i for i, name in enumerate(part.columns)}
    for row in part.rows:
        factor, values = math.exp(rng.gauss(-0.1, 0.3)), {}
        for name in ("speedup", "ci_low", "ci_high"):
            if row[at[name]] != "\\N":
                values[name] = repr(float(row[at[name]]) * factor)
        if row[at["verdict"]] in ("keep", "disable", "inconclusive") and "ci_low" in values:
            low, high = float(values["ci_low"]), float(values["ci_high"])
            word = "keep" if low > 1.03 else "disable" if high < 1 else "inconclusive"
            values |= {"verdict": word, "recommended": "t" if word == "keep" and rng.random() < 0.5 else "f"}
        yield values


def _listings(copy: Copy, part: Part, seed: int) -> Iterator[dict[str, str]]:
    at = {name: i for i, name in enumerate(part.columns)}
    compared = copy.template.part("results_comparison")
    moved = changed(compared, _comparisons(copy, compared, seed))
    told = {(c := dict(zip(moved.columns, row, strict=True)))["id"]: c for row in moved.rows}
    for row in part.rows:
        old, own = row[at["target_hash"]], told[row[at["comparison_id"]]]
        yield {
            "recommended": own["recommended"],
            "lower_end": own["ci_low"] if own["ci_low"] != "\\N" else own["speedup"],
            "team_id": str(copy.team),
            "visibility": copy.visibility,
            "submitter_id": str(copy.member),
            "host_id": copy.offer.host,
            "question_key": _hash(row[at["question_key"]], copy.model[1]),
            "work_key": _hash(row[at["work_key"]], copy.model[1]),
            "question": row[at["question"]].replace(old, copy.model[1]),
            "target_hash": copy.model[1],
            "target": copy.model[2],
            "hardware": copy.offer.hardware,
            "driver": copy.offer.driver,
            "runtime_hash": copy.runtime[1],
            "build": copy.runtime[2],
            "backend": copy.runtime[3],
        }


#: Tables whose rows differ from copy to copy in more than their numbers and their day.
_OWN: dict[str, Callable[[Copy, Part, int], Iterator[dict[str, str]]]] = {
    "experiments_experiment": _experiment,
    "experiments_job": _job,
    "experiments_lease": _lease,
    "results_comparison": _comparisons,
    "results_listing": _listings,
}
