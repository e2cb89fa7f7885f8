"""Results of test set-up that are made once: asked again in the same state, the rows and files that it made are put back.

What is remembered depends on nothing but its arguments and on what the database and the evidence folder hold; both are
compared before anything is put back, with moments near now told from now. Keys are those of the first time, so that what
is built on top is found again too. A test that patches something makes everything anew.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Model
from pydantic import BaseModel

P, R = ParamSpec("P"), TypeVar("R")
Rows = dict[str, frozenset[str]]

#: Moments younger than this are told from now: they move on when they are put back.
NEAR = timedelta(hours=1)
#: Moments that differ by less are the same to what is made from them.
ALIKE_S = 300.0
MOST = 40

_memory: OrderedDict[tuple[Any, ...], _Made] = OrderedDict()
#: False while a test runs that patches what is remembered.
allowed = True


class _Unknown(Exception):
    """An argument that can't be compared with another."""


@dataclass(frozen=True)
class _Table:
    name: str
    columns: tuple[str, ...]  # the primary key first
    moments: frozenset[int]  # the columns that hold a moment

    @property
    def listed(self) -> str:
        return ", ".join(f'"{c}"' for c in self.columns)


@dataclass(frozen=True)
class _Made:
    at: datetime
    gone: dict[str, list[str]]  # table → keys of rows that are no more, or not as they were
    rows: dict[str, list[str]]
    files: dict[str, bytes]
    result: bytes


def remembered(make: Callable[P, R]) -> Callable[P, R]:
    """The function, which does its work once for each state and each arguments."""

    @functools.wraps(make)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if not allowed or not _may_put_back():
            return make(*args, **kwargs)
        now = datetime.now(UTC)
        try:
            asked = (make.__module__, make.__qualname__, _plain(args, now), _plain(kwargs, now))
        except _Unknown:
            return make(*args, **kwargs)
        before, files = _all_rows(), _files()
        key = (*asked, _fingerprint(before, files, now))
        found = _memory.get(key)
        if found is None:
            result = make(*args, **kwargs)
            _remember(key, result, before, files, now)
            return result
        _memory.move_to_end(key)
        _put_back(found, now)
        return _Unpickler(io.BytesIO(found.result), now - found.at).load()  # type: ignore[no-any-return]

    return wrapper


@functools.cache
def _may_put_back() -> bool:
    """Triggers are silenced by nobody but a superuser, which the tests' own server and those of CI give."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW is_superuser")
        return cursor.fetchone() == ("on",)


def _plain(value: Any, now: datetime) -> Any:
    """Something that is equal where the argument is."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, datetime):
        return "at", round((value - now).total_seconds() / ALIKE_S)
    if isinstance(value, Model):
        return value._meta.label, value.pk
    if isinstance(value, BaseModel):
        return type(value).__qualname__, value.model_dump_json()
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__qualname__, *(_plain(getattr(value, f.name), now) for f in fields(value))
    if isinstance(value, dict):
        return tuple((k, _plain(v, now)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(_plain(v, now) for v in value)
    if isinstance(value, types.FunctionType):
        closure = tuple(_plain(cell.cell_contents, now) for cell in value.__closure__ or ())
        return value.__module__, value.__code__, _plain(value.__defaults__, now), _plain(value.__kwdefaults__, now), closure
    raise _Unknown(type(value))


@functools.cache
def _tables() -> list[_Table]:
    """Those that tests fill; who is logged in makes no difference."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.table_name, c.column_name, c.data_type, k.column_name IS NOT NULL FROM information_schema.columns c"
            " JOIN information_schema.tables t USING (table_schema, table_name)"
            " LEFT JOIN (information_schema.table_constraints p JOIN information_schema.key_column_usage k"
            " USING (constraint_schema, constraint_name)) ON p.constraint_type = 'PRIMARY KEY'"
            " AND (k.table_schema, k.table_name, k.column_name) = (c.table_schema, c.table_name, c.column_name)"
            " WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER'"
            " AND c.table_name NOT IN ('django_migrations', 'django_content_type', 'django_session', 'auth_permission')"
            " ORDER BY c.table_name, k.column_name IS NULL, c.ordinal_position"
        )
        columns: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind, _ in cursor.fetchall():
            columns.setdefault(table, []).append((column, kind))
    return [
        _Table(name, tuple(c for c, _ in of), frozenset(i for i, (_, kind) in enumerate(of) if kind == "timestamp with time zone"))
        for name, of in columns.items()
    ]


def _all_rows() -> Rows:
    """Table → its rows as PostgreSQL copies them; only tables that have any."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f'SELECT {i} WHERE EXISTS (SELECT FROM "{t.name}")' for i, t in enumerate(_tables())))
        for (i,) in cursor.fetchall():
            table = _tables()[i]
            with cursor.copy(f'COPY "{table.name}" ({table.listed}) TO STDOUT') as copy:
                found[table.name] = frozenset(b"".join(copy).decode().removesuffix("\n").split("\n"))
    return found


def _folder() -> Path:
    return Path(settings.SPECWEB_EVIDENCE_DIR)


def _files() -> frozenset[str]:
    folder = _folder()
    return frozenset(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else frozenset()


def _moments(row: str, table: _Table, change: Callable[[datetime], str | None]) -> str:
    """The row with the moments that ``change`` has a word for replaced."""
    fields = row.split("\t")
    for i in table.moments:
        if fields[i] != "\\N":
            fields[i] = change(datetime.fromisoformat(fields[i])) or fields[i]
    return "\t".join(fields)


def _fingerprint(rows: Rows, files: frozenset[str], now: datetime) -> str:
    def from_now(moment: datetime) -> str | None:
        return f"now {round((moment - now).total_seconds() / ALIKE_S)}" if moment > now - NEAR else None

    tables = {t.name: t for t in _tables()}
    digest = hashlib.sha256()
    for name in sorted(rows):
        digest.update(f"{name}\n".encode())
        for row in sorted(_moments(row, tables[name], from_now) for row in rows[name]):
            digest.update(f"{row}\n".encode())
    digest.update("\n".join(sorted(files)).encode())
    return digest.hexdigest()


def _remember(key: tuple[Any, ...], result: Any, before: Rows, files: frozenset[str], now: datetime) -> None:
    after, none = _all_rows(), frozenset[str]()
    new = {name: sorted(rows - before.get(name, none)) for name, rows in after.items() if rows - before.get(name, none)}
    gone = {
        name: [row.partition("\t")[0] for row in rows - after.get(name, none)]
        for name, rows in before.items()
        if rows - after.get(name, none)
    }
    content = {name: (_folder() / name).read_bytes() for name in _files() - files}
    held = io.BytesIO()
    _Pickler(held, now).dump(result)
    _memory[key] = _Made(now, gone, new, content, held.getvalue())
    if len(_memory) > MOST:
        _memory.popitem(last=False)


def _put_back(made: _Made, now: datetime) -> None:
    passed = now - made.at

    def moved(moment: datetime) -> str | None:
        return (moment + passed).isoformat() if moment > made.at - NEAR else None

    with transaction.atomic(), connection.cursor() as cursor:
        # What triggers made of the rows is among the rows.
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in _tables():
            if keys := made.gone.get(table.name):
                cursor.execute(f'DELETE FROM "{table.name}" WHERE "{table.columns[0]}"::text = ANY(%s)', [keys])
            if rows := made.rows.get(table.name):
                with cursor.copy(f'COPY "{table.name}" ({table.listed}) FROM STDIN') as copy:
                    copy.write("".join(f"{_moments(row, table, moved)}\n" for row in rows))
        cursor.execute("SET LOCAL session_replication_role = origin")
    for name, content in made.files.items():
        path = _folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class _Pickler(pickle.Pickler):
    """Moments near now are kept apart, so that they can move on."""

    def __init__(self, file: io.BytesIO, now: datetime) -> None:
        super().__init__(file)
        self.since = now - NEAR

    def persistent_id(self, obj: Any) -> Any:
        return obj.isoformat() if isinstance(obj, datetime) and obj.tzinfo is not None and obj > self.since else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, passed: timedelta) -> None:
        super().__init__(file)
        self.passed = passed

    def persistent_load(self, pid: Any) -> Any:
        return datetime.fromisoformat(pid) + self.passed
