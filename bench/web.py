"""How fast are the pages, with ten thousand trials and with a million? ``make bench-web [OUT=F] [ATTEMPTS=…] [SEED=…]``.

Fills a PostgreSQL of its own with copies of real experiments (see ``web_fill``) at 10,000 attempts and at ``ATTEMPTS``, and asks each
page as a logged-in member: through the WSGI application with all of its middleware, in one process and without a socket. Beside each
page's time stands that of its bare SQL: the same statements with the same values on one connection, all rows fetched.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults

from bench.web_fill import READER, fill, world
from bench.web_template import Template, seed_workloads, templates
from demo.stack import Stack

ATTEMPTS, FEW = 1_000_000, 10_000
MOST_MS, MOST_STATEMENTS, MOST_OF_SQL, MOST_GROWTH = 150.0, 12, 2.0, 1.5
#: Addresses asked of each page, and how often each; of the small database, which only says how pages grow, fewer.
ADDRESSES, ADDRESSES_OF_FEW, TIMES = 15, 8, 2

Statement = tuple[str, Any]


@dataclass(frozen=True)
class Row:
    page: str
    n_trials: int
    p50_ms: float
    p95_ms: float
    sql_p50_ms: float
    sql_p95_ms: float
    statements: int
    bytes: int


@dataclass(frozen=True)
class Reader:
    """Somebody who is logged in, in a browser and with a token."""

    cookie: str
    token: str


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench-web")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help=f"of the large database; the small one has {FEW:,}")
    parser.add_argument("--few", type=int, default=FEW, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="keep the database here, to look into it; else a folder that is removed")
    parser.add_argument("--pages", default="", help="only pages whose names begin so")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    home = args.home or Path(tempfile.mkdtemp(prefix="specweb-bench-web-"))
    rows: list[Row] = []
    try:
        with Stack(home, valkey=False) as addresses:
            _set_up(addresses.database_url, home)
            made: list[Template] = []
            for n in dict.fromkeys((min(args.few, args.attempts), args.attempts)):
                rows += _at(addresses.database_url, n, args.seed, args.pages, made)
    finally:
        if args.home is None:
            shutil.rmtree(home, ignore_errors=True)
    print(table(rows))
    if args.out:
        args.out.write_text(json.dumps({"rows": [asdict(r) for r in rows]}, indent=1) + "\n")
    return 1 if any(broken(r, rows) for r in rows) else 0


def _set_up(database_url: str, home: Path) -> None:
    """Django as in production, with what every installation has to set."""
    os.environ |= {
        "DATABASE_URL": database_url,
        "BROKER_URL": "redis+socket:///nonexistent/broker.sock",
        "SECRET_KEY": "only-for-the-bench",
        "SPECWEB_EVIDENCE_DIR": str(home / "evidence"),
        "SPECWEB_STATIC_ROOT": str(home / "static"),
        "DJANGO_SETTINGS_MODULE": "specweb.settings",
        "LOG_LEVEL": "ERROR",
    }
    import django

    django.setup()
    logging.getLogger("specweb").setLevel(logging.CRITICAL)  # no worker is there to wake
    from django.core.management import call_command

    call_command("collectstatic", interactive=False, verbosity=0)


def _at(database_url: str, n: int, seed: int, only: str, made: list[Template]) -> list[Row]:
    """All pages with ``n`` attempts, in a database of its own on the same server. ``made``: the templates, once there are some."""
    from django.core.management import call_command
    from django.db import connections

    name = f"bench_{n}"
    url = database_url.replace("/specweb?", f"/{name}?")
    began = time.monotonic()
    if not _exists(database_url, name):
        _create(database_url, name)
        _connect(url)
        call_command("migrate", verbosity=0)
        made[:] = made or templates()
        seed_workloads()
        there = world(seed)
        experiments = max(1, n // made[0].n_attempts)
        fill(url, there, made, experiments, seed, lambda words: _told(began, words))
    _connect(url)
    reader = _reader()
    gc.collect()
    gc.freeze()  # what the bench itself holds is nothing that a page should wait for
    most = ADDRESSES if n > FEW else ADDRESSES_OF_FEW
    rows = [measured(page, n, addresses, reader) for page, addresses in _pages(seed, most).items() if page.startswith(only)]
    _told(began, f"{n:,} attempts measured")
    connections.close_all()
    return rows


def _told(began: float, words: str) -> None:
    print(f"{time.monotonic() - began:6.0f} s  {words}", file=sys.stderr, flush=True)


def _exists(database_url: str, name: str) -> bool:
    import psycopg

    with psycopg.connect(database_url) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone())


def _create(database_url: str, name: str) -> None:
    import psycopg

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")


def _connect(url: str) -> None:
    import dj_database_url
    from django.db import connections

    connections.close_all()
    connections.settings["default"].update(dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True))
    if hasattr(connections._connections, "default"):  # type: ignore[attr-defined]
        del connections["default"]


def _reader() -> Reader:
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore
    from django.utils import timezone

    from specweb.accounts.models import User
    from specweb.accounts.services import create_token

    user = User.objects.get(username=READER)
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session.create()
    _, token = create_token(user, f"bench {timezone.now():%H:%M:%S.%f}")
    return Reader(f"{settings.SESSION_COOKIE_NAME}={session.session_key}", token)


def _pages(seed: int, most: int) -> dict[str, list[str]]:
    """Page → addresses of it that the reader may open, at most so many, and of what it fetches after its first paint."""
    from specweb.accounts.models import User
    from specweb.experiments.models import Experiment, Host, Job, Model
    from specweb.results.models import Attempt, Comparison, Listing, Probe

    rng, user = random.Random(seed), User.objects.get(username=READER)
    visible = Experiment.objects.visible_to(user).filter(jobs__state="processed")
    ended = list(visible.order_by("id").values_list("pk", flat=True))
    some = rng.sample(ended, min(most, len(ended)))
    trials = list(Attempt.objects.filter(trial__job__experiment__in=some, outcome="ok", trial__index=7).values_list("pk", flat=True))
    probes = Probe.objects.filter(attempt__in=trials, warmup=False, i__lte=2).values_list("attempt_id", "line")
    jobs = Job.objects.filter(experiment__in=some).values_list("pk", flat=True)
    columns = ("hardware", "target", "target_hash", "workload", "concurrency", "mode", "question_key")
    listed = list(Listing.objects.filter(experiment__in=some).values(*columns))
    numbers = Comparison.objects.filter(job__experiment__in=some).values_list("job_id", "arm__name", "point__key")
    hosts = [host.pk for host in Host.objects.visible_to(user)]
    models = list(Model.objects.visible_to(user).order_by("pk").values_list("manifest_hash", flat=True))[:most]

    def of(path: str, *names: str) -> list[str]:
        words = {"work": "workload", "model": "target", "question": "question_key"}
        return sorted({f"{path}?{urlencode({n: x[words.get(n, n)] for n in names})}" for x in listed})[:most]

    return {
        "home": ["/"],
        "home, asked": of("/", "hardware", "model"),
        "home, searched": [f"/?{urlencode({'q': x['target']})}" for x in listed[:most]],
        "home, page 50": ["/?page=50"],
        "compare": ["/compare/"],
        "compare, target": of("/compare/", "target"),
        "compare, hardware and work": of("/compare/", "hardware", "work"),
        "compare, three filters": of("/compare/", "target", "work", "mode"),
        "compare, charts": ["/compare/charts/", *of("/compare/charts/", "target")][:most],
        "compare, history": of("/compare/history/", "question", "hardware"),
        "experiment": [f"/experiments/{pk}/" for pk in some],
        "experiment, order": [f"/jobs/{pk}/order.json" for pk in jobs],
        "runs": [f"/experiments/{pk}/runs" for pk in some],
        "trial": [f"/attempts/{pk}/" for pk in trials],
        "trial, stream": [f"/attempts/{pk}/series/stream.json" for pk in trials],
        "trial, cycles": [f"/attempts/{pk}/series/cycles.json?probe={line}" for pk, line in list(probes)[:most]],
        "numbers": [f"/jobs/{job}/numbers?{urlencode({'arm': arm, 'point': point})}" for job, arm, point in list(numbers)[:most]],
        "API list": ["/api/v1/experiments/", "/api/v1/experiments/?state=processed", "/api/v1/experiments/?team=team-0"],
        "hosts": ["/hosts/"],
        "host": [f"/hosts/{pk}/" for pk in hosts],
        "models": ["/models/"],
        "model": [f"/models/{sha256}/" for sha256 in models],
        "hardware": ["/hardware/"],
        "runtimes": ["/runtimes/"],
    }


def measured(page: str, n: int, addresses: Sequence[str], reader: Reader) -> Row:
    """Each address once to warm up and to keep its statements, then several times by the clock, and its statements alone."""
    from specweb.wsgi import application

    asked, sizes = [], []
    for address in addresses:
        statements, size = _kept(lambda address=address: _ask(application, address, reader))  # type: ignore[misc]
        asked.append(statements)
        sizes.append(size)
    times, sql = [], []
    for _ in range(max(TIMES, 12 // len(addresses))):
        for address, statements in zip(addresses, asked, strict=True):
            times.append(_timed(lambda address=address: _ask(application, address, reader)))  # type: ignore[misc]
            sql.append(_timed(lambda statements=statements: _replay(statements)))  # type: ignore[misc]
    return Row(
        page,
        n,
        *(round(f, 1) for f in (statistics.median(times), _p95(times), statistics.median(sql), _p95(sql))),
        statements=max(map(len, asked)),
        bytes=round(statistics.median(sizes)),
    )


def _ask(application: Callable[..., Any], address: str, reader: Reader) -> int:
    """The size of the answer as it travels, which is read to its end."""
    path, _, query = address.partition("?")
    environ: dict[str, Any] = {"PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": "127.0.0.1", "REQUEST_METHOD": "GET"}
    environ["HTTP_ACCEPT_ENCODING"] = "gzip"
    if path.startswith("/api/"):
        environ["HTTP_AUTHORIZATION"] = f"Bearer {reader.token}"
    else:
        environ["HTTP_COOKIE"] = reader.cookie
    setup_testing_defaults(environ)
    told = []
    answer = application(environ, lambda status, headers, *_: told.append(status))
    try:
        size = sum(map(len, answer))
    finally:
        answer.close()
    if not told[0].startswith("200"):
        raise RuntimeError(f"{address} answers {told[0]}")
    return size


def _kept(ask: Callable[[], int]) -> tuple[list[Statement], int]:
    """The statements of one request, and what it returns. The first time warms up: a token's last use is stamped then."""
    from django.db import connection

    kept: list[Statement] = []

    def keep(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        kept.append((sql, params))
        return execute(sql, params, many, context)

    ask()
    with connection.execute_wrapper(keep):
        size = ask()
    return kept, size


def _replay(statements: Sequence[Statement]) -> None:
    """On the connection itself, past Django's layer; all rows are fetched."""
    from django.db import connection

    connection.ensure_connection()
    with connection.connection.cursor() as cursor:
        for sql, params in statements:
            cursor.execute(sql, params)
            if cursor.description:
                cursor.fetchall()


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.95 * len(values)))]


def broken(row: Row, rows: Sequence[Row]) -> str:
    """What of the goal a page doesn't keep. Where its SQL takes a few milliseconds, twice of it is less than any page takes."""
    small = next((r for r in rows if r.page == row.page and r.n_trials < row.n_trials), row)
    kept = {
        f"over {MOST_MS:g} ms": row.p95_ms <= MOST_MS,
        f"over {MOST_STATEMENTS} statements": row.statements <= MOST_STATEMENTS,
        f"over {MOST_GROWTH:g} times the small one's": row.p50_ms <= MOST_GROWTH * small.p50_ms,
        f"over {MOST_OF_SQL:g} times its SQL": row.p95_ms <= MOST_OF_SQL * row.sql_p95_ms,
    }
    return ", ".join(words for words, held in kept.items() if not held)


def table(rows: Sequence[Row]) -> str:
    lines = ["| page | trials | p50 ms | p95 ms | SQL p95 ms | page ÷ SQL | statements | kB | |", "|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for r in rows:
        of_sql = r.p95_ms / r.sql_p95_ms if r.sql_p95_ms else 0
        lines.append(
            f"| {r.page} | {r.n_trials:,} | {r.p50_ms:.0f} | {r.p95_ms:.0f} | {r.sql_p95_ms:.1f} | {of_sql:.1f} |"
            f" {r.statements} | {r.bytes / 1000:.0f} | {broken(r, rows)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
