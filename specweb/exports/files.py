"""Rows as a file, a piece at a time: CSV, a JSON array, lines of JSON, Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from speccore.errors import ServerError

from .table import Column, Table

Rows = Iterable[Sequence[Any]]
#: A piece of a file is about so many rows.
PIECE = 500
#: Rows of a group of a Parquet file.
GROUP = 10_000
#: A spreadsheet runs a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class FormNotInstalled(ServerError):
    code = "form_not_installed"
    retry = False
    remedy = "Ask for csv, json or jsonl; or have the service installed with the extra: pip install 'specweb[parquet]'."


@dataclass(frozen=True)
class Form:
    """A kind of file. ``write`` may raise before its first piece, and then nothing was sent."""

    name: str
    media: str
    write: Callable[[Table, Rows], Iterator[bytes]]


def as_csv(table: Table, rows: Rows) -> Iterator[bytes]:
    """UTF-8, a head line, lines that end in CRLF; empty for what is not there. Texts that people chose can't become formulas."""
    chosen = [c.kind in ("text", "json") for c in table.columns]
    for first, piece in _pieces(rows):
        out = io.StringIO(newline="")
        writer = csv.writer(out)
        if first:
            writer.writerow([c.name for c in table.columns])
        writer.writerows([_cell(v, text) for v, text in zip(row, chosen, strict=True)] for row in piece)
        yield out.getvalue().encode()


def as_json(table: Table, rows: Rows) -> Iterator[bytes]:
    """An array with an object for each row; ``null`` for what is not there."""
    before = "[\n"
    for row in _objects(table, rows):
        yield f"{before}{row}".encode()
        before = ",\n"
    yield b"\n]\n" if before != "[\n" else b"[]\n"


def as_lines(table: Table, rows: Rows) -> Iterator[bytes]:
    for row in _objects(table, rows):
        yield f"{row}\n".encode()


def as_parquet(table: Table, rows: Rows) -> Iterator[bytes]:
    """Raises :class:`FormNotInstalled`, before the first piece, where the service lacks the library for it."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise FormNotInstalled("this service can't write Parquet files: pyarrow is not installed") from None
    return _parquet(table, rows, pa, pq)


def _parquet(table: Table, rows: Rows, pa: Any, pq: Any) -> Iterator[bytes]:
    kinds = {"integer": pa.int64(), "number": pa.float64(), "yes or no": pa.bool_(), "time": pa.timestamp("us", tz="UTC")}
    schema = pa.schema([pa.field(c.name, kinds.get(c.kind, pa.string())) for c in table.columns])
    sink, source = _Sink(), iter(rows)
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        while group := list(islice(source, GROUP)):
            parts = [pa.array([_typed(row[i], c) for row in group], schema.field(i).type) for i, c in enumerate(table.columns)]
            writer.write_table(pa.Table.from_arrays(parts, schema=schema))
            yield sink.taken()
    yield sink.taken()


FORMS: Mapping[str, Form] = {
    f.name: f
    for f in (
        Form("csv", "text/csv", as_csv),
        Form("json", "application/json", as_json),
        Form("jsonl", "application/jsonl", as_lines),
        Form("parquet", "application/vnd.apache.parquet", as_parquet),
    )
}


class _Sink(io.RawIOBase):
    """What a Parquet writer writes to; handed on in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[bytes] = []
        self._n = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._kept.append(bytes(piece))
        self._n += len(self._kept[-1])
        return len(self._kept[-1])

    def tell(self) -> int:
        return self._n

    def taken(self) -> bytes:
        piece, self._kept = b"".join(self._kept), []
        return piece


def _pieces(rows: Rows) -> Iterator[tuple[bool, list[Sequence[Any]]]]:
    """Groups of rows; the first one, which may be empty, is marked."""
    source, first = iter(rows), True
    while (piece := list(islice(source, PIECE))) or first:
        yield first, piece
        first = False


def _objects(table: Table, rows: Rows) -> Iterator[str]:
    names = [c.name for c in table.columns]
    for row in rows:
        yield json.dumps({n: _plain(v) for n, v in zip(names, row, strict=True)}, ensure_ascii=False, allow_nan=False)


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any, text: bool) -> Any:
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return f"'{value}" if text and isinstance(value, str) and value.startswith(_FORMULA) else value


def _typed(value: Any, column: Column) -> Any:
    if value is None:
        return None
    if column.kind == "number":
        return float(value) if math.isfinite(value) else None
    if column.kind == "json":
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return str(value) if column.kind in ("id", "text") else value
