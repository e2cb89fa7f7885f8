"""Tables as CSV, from a spreadsheet or a public list: read by a mapping that says what each column is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from .cells import CellWrong, devices, figure
from .mapping import LENGTHS, Mapping
from .places import Refused, plain, text_of
from .shapes import MAX_RUNS, ImportFault, Number, Reading, Run, reading, refused

TOOL = "table"
DELIMITERS = ",;\t|"
MAX_COLUMNS, MAX_CELL, N_SAMPLES = 100, 2_000, 5
_TEXTS = ("title", "model", "engine", "hardware", "arm", "contributor", "at")
_LENGTH_UNITS = {"concurrency": "requests", "n_requests": "requests"}


@dataclass(frozen=True)
class Table:
    """Headers, and each row with its line. Cells are as written, spaces around them left out."""

    headers: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    delimiter: str

    @property
    def samples(self) -> list[tuple[str, ...]]:
        return [row for _, row in self.rows[:N_SAMPLES]]


def table_of(data: bytes) -> Table:
    """The file as a table. Raises :class:`Refused`."""
    text = text_of(data).replace("\x00", "\ufffd")
    lines = text.splitlines(keepends=True)
    first = next(line for line in lines if line.strip())
    delimiter = max(DELIMITERS, key=first.count)
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        rows = [(reader.line_num, tuple(cell.strip() for cell in row)) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise Refused(ImportFault(f"is no CSV: {error}", "Save the table as CSV again.", line=reader.line_num)) from None
    if not rows:
        raise Refused(ImportFault("has no cell with a word", "Choose the file that holds the table.", line=1))
    (line, headers), body = rows[0], rows[1:]
    _refuse_headers(headers, line)
    if not body:
        raise Refused(ImportFault("has a header and no row", "Send the whole table.", line=line))
    if len(body) > MAX_RUNS:
        raise Refused(ImportFault(f"has {len(body):,} rows; at most {MAX_RUNS:,} are taken", "Split it into several files."))
    for line, row in body:
        if len(row) > len(headers) and any(row[len(headers) :]):
            words = f"has {len(row)} cells, and the header {len(headers)} columns"
            raise Refused(ImportFault(words, "A cell that holds the delimiter stands in quotation marks.", line=line))
        long = next((h for h, cell in zip(headers, row, strict=False) if len(cell) > MAX_CELL), None)
        if long is not None:
            raise Refused(ImportFault(f"has more than {MAX_CELL:,} characters", "Shorten it.", plain(long, 60), line=line))
    return Table(headers, tuple(body), delimiter)


def _refuse_headers(headers: Sequence[str], line: int) -> None:
    if len(headers) > MAX_COLUMNS:
        raise Refused(ImportFault(f"has {len(headers)} columns; at most {MAX_COLUMNS} are read", "Leave out the others.", line=line))
    if len(headers) < 2:
        raise Refused(
            ImportFault("has one column only", "Save the table as CSV, with commas, semicolons or tabs between its cells.", line=line)
        )
    for i, header in enumerate(headers):
        if not header:
            raise Refused(ImportFault(f"has no name for column {i + 1}", "Give each column a name in the first row.", line=line))
        if header in headers[:i]:
            raise Refused(ImportFault(f"names two columns {plain(header, 40)!r}", "Give each column its own name.", line=line))
        if len(header) > 120:
            raise Refused(ImportFault(f"has a column name of {len(header)} characters", "Shorten it to 120.", line=line))


def read(data: bytes, mapping: Mapping) -> Reading:
    """The rows as ``mapping`` says. A cell that can't be what its column is refuses the file, with line and column."""
    constants = mapping.constants
    tool, version = constants.get("tool", TOOL), constants.get("version", "")
    try:
        table = table_of(data)
    except Refused as error:
        return refused(tool, error.fault, version=version)
    faults: list[ImportFault] = []
    warnings: list[str] = []
    runs = []
    for line, row in table.rows:
        cells = dict(zip(table.headers, row, strict=False))
        run = _run(line, cells, mapping, faults, warnings)
        if run.numbers:
            runs.append(run)
    if not faults and (n_empty := len(table.rows) - len(runs)):
        warnings.append(f"{n_empty} row{'s hold' if n_empty > 1 else ' holds'} no number, and {'are' if n_empty > 1 else 'is'} left out.")
    return reading(tool, version, runs, warnings, faults)


def _run(line: int, cells: dict[str, str], mapping: Mapping, faults: list[ImportFault], warnings: list[str]) -> Run:
    texts = {role: mapping.constants.get(role, "") for role in _TEXTS}
    lengths: dict[str, float | None] = dict.fromkeys(LENGTHS)
    settings: dict[str, str] = {}
    numbers: list[Number] = []
    notes = []
    for column in mapping.columns:
        cell = cells.get(column.header, "")
        if column.role == "number":
            try:
                found = figure(cell, column.unit, mapping.decimal)
            except CellWrong as wrong:
                faults.append(ImportFault(wrong.reason, wrong.remedy, plain(column.header, 60), plain(cell, 60), line))
                continue
            if found is not None:
                numbers.append(Number(column.kind, found.value, found.low, found.high, plain(cell, 80), plain(found.note, 120), line))
        elif column.role in _TEXTS:
            texts[column.role] = plain(cell, 300)
        elif column.role in LENGTHS:
            lengths[column.role] = _length(cell, column.role, mapping, settings, column.header)
        elif column.role == "notes" and cell:
            notes.append(plain(cell, 500))
        elif column.role == "setting" and cell:
            settings[plain(column.header, 80)] = plain(cell, 200)
    n = lengths["n_requests"]
    return Run(
        title=texts["title"],
        model=texts["model"],
        engine=texts["engine"],
        hardware=texts["hardware"],
        arm=texts["arm"],
        at=texts["at"],
        contributor=texts["contributor"],
        concurrency=lengths["concurrency"],
        prompt_tokens=lengths["prompt_tokens"],
        output_tokens=lengths["output_tokens"],
        context_tokens=lengths["context_tokens"],
        n_requests=None if n is None else int(n),
        devices=devices(texts["hardware"]),
        notes="; ".join(notes),
        settings=settings,
        numbers=tuple(numbers),
        line=line,
    )


def _length(cell: str, role: str, mapping: Mapping, settings: dict[str, str], header: str) -> float | None:
    """A length in tokens or a count; one that is no plain number, such as "8k", stays as words among the settings."""
    try:
        found = figure(cell, _LENGTH_UNITS.get(role, "tokens"), mapping.decimal)
    except CellWrong:
        found = None
    if found is not None and found.value is not None and (role != "n_requests" or found.value == int(found.value)):
        return found.value
    if cell:
        settings[plain(header, 80)] = plain(cell, 200)
    return None
