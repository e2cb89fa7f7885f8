"""What the columns of a table mean: proposed from their headers, said by a person, kept as a template."""

from __future__ import annotations

import re
from collections.abc import Mapping as Given
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from speccore.metrics import METRICS

from .cells import MISSING, UNITS, CellWrong, figure
from .cells import WORDS as UNIT_WORDS
from .places import plain
from .shapes import ImportFault, Kind

WORDS = {
    "number": "a number",
    "hardware": "hardware",
    "model": "model",
    "engine": "engine and build",
    "arm": "speculation mode",
    "title": "name of the row",
    "contributor": "who measured it",
    "at": "when",
    "concurrency": "requests at once",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "context_tokens": "tokens of context",
    "n_requests": "number of requests",
    "notes": "notes",
    "setting": "another setting, as words",
    "skip": "leave out",
}
LENGTHS = ("concurrency", "prompt_tokens", "output_tokens", "context_tokens", "n_requests")
ONCE = tuple(r for r in WORDS if r not in ("number", "setting", "skip", "notes"))
STATISTICS = ("not told", "mean", "median", "p90", "p95", "p99", "min", "max", "sd", "total", "whole run")
CONSTANTS = ("model", "engine", "hardware", "arm", "tool", "version")
UNTOLD = "As the table’s author reports it; how it was counted is not told."
MAX_COLUMNS, MAX_TEXT = 100, 400
KEYS = ("as", "name", "unit", "statistic", "definition", "metric")


@dataclass(frozen=True)
class Column:
    """One column: its role, and of a number what it is. ``metric`` is the nearest of ours, or empty."""

    header: str
    role: str
    name: str = ""
    unit: str = ""
    statistic: str = "not told"
    definition: str = ""
    metric: str = ""

    @property
    def kind(self) -> Kind:
        return Kind(self.header, self.name or self.header, self.unit, self.statistic, self.definition or UNTOLD, self.metric)


@dataclass(frozen=True)
class Mapping:
    """``decimal`` is the decimal sign; ``constants`` holds what is the same in all rows and has no column."""

    columns: tuple[Column, ...]
    decimal: str = "."
    constants: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The form in which a mapping is sent, kept and read again."""
        columns = {}
        for c in self.columns:
            told = {k: v for k, v in asdict(c).items() if v and k not in ("header", "role")}
            columns[c.header] = {"as": c.role} | (told if c.role == "number" else {})
        return {"columns": columns, "decimal": self.decimal, "constants": self.constants}


def mapping_of(value: object, headers: Sequence[str] | None = None) -> tuple[Mapping | None, list[ImportFault]]:
    """A mapping as it is sent, against the table's headers where these are given. None with faults."""
    faults: list[ImportFault] = []
    if not isinstance(value, dict) or not isinstance(value.get("columns"), dict):
        return None, [
            ImportFault("is no mapping", 'Send {"columns": {"HEADER": {"as": "hardware"}, …}}.', "mapping", plain(str(value), 60))
        ]
    for key in value:
        if key not in ("columns", "decimal", "constants"):
            faults.append(ImportFault("is unknown", "Known: columns, decimal, constants.", f"mapping.{plain(str(key), 60)}"))
    decimal = value.get("decimal", ".")
    if decimal not in (".", ","):
        faults.append(ImportFault("is no decimal sign", 'It is "." or ",".', "mapping.decimal", plain(str(decimal), 20)))
    constants = _constants(value.get("constants") or {}, faults)
    columns = [_column(str(h), c, faults) for h, c in list(value["columns"].items())[:MAX_COLUMNS]]
    if len(value["columns"]) > MAX_COLUMNS:
        faults.append(ImportFault(f"has more than {MAX_COLUMNS} columns", "Leave out the others.", "mapping.columns"))
    found = [c for c in columns if c is not None]
    faults += _between(found, constants)
    if headers is not None:
        for missing in [c.header for c in found if c.header not in headers]:
            there = ", ".join(plain(h, 40) for h in headers[:12])
            faults.append(ImportFault("is no column of this table", f"Its columns: {there}.", f"mapping.columns.{plain(missing, 60)}"))
    return (None, faults) if faults else (Mapping(tuple(found), decimal, constants), [])


def _constants(given: object, faults: list[ImportFault]) -> dict[str, str]:
    if not isinstance(given, dict):
        faults.append(ImportFault("is no object", f"Known: {', '.join(CONSTANTS)}.", "mapping.constants"))
        return {}
    kept = {}
    for key, text in given.items():
        if key not in CONSTANTS or not isinstance(text, str):
            faults.append(
                ImportFault("is unknown", f"Known, each a text: {', '.join(CONSTANTS)}.", f"mapping.constants.{plain(str(key), 60)}")
            )
        elif plain(text, MAX_TEXT):
            kept[key] = plain(text, MAX_TEXT)
    return kept


def _column(header: str, given: object, faults: list[ImportFault]) -> Column | None:
    place = f"mapping.columns.{plain(header, 60)}"
    if not isinstance(given, Given) or given.get("as") not in WORDS:
        shown = plain(str(given.get("as") if isinstance(given, Given) else given), 60)
        faults.append(ImportFault("says no role that is known", f"as: one of {', '.join(WORDS)}.", place, shown))
        return None
    before = len(faults)
    for key, text in given.items():
        if key not in KEYS:
            faults.append(ImportFault("is unknown", f"Known: {', '.join(KEYS)}.", f"{place}.{plain(str(key), 40)}"))
        elif not isinstance(text, str):
            faults.append(ImportFault("is no text", "Write it in quotation marks.", f"{place}.{key}", plain(str(text), 40)))
    if len(faults) > before:
        return None
    role = given["as"]
    if role != "number":
        return Column(header, role)
    unit, statistic, metric = given.get("unit", ""), given.get("statistic", "not told"), given.get("metric", "")
    for key, text, known in (("unit", unit, UNITS), ("statistic", statistic, STATISTICS), ("metric", metric, ("", *METRICS))):
        if text not in known:
            words = ", ".join(k or '""' for k in known) if key != "metric" else "the ids in docs/measurement.md, or leave it out"
            faults.append(ImportFault("is unknown", f"Known: {words}.", f"{place}.{key}", plain(text, 40)))
    name, definition = plain(given.get("name", ""), 80), plain(given.get("definition", ""), MAX_TEXT)
    return Column(header, role, name, unit, statistic, definition, metric)


def _between(columns: Sequence[Column], constants: Given[str, str]) -> list[ImportFault]:
    """What is wrong with columns only beside each other."""
    faults = []
    roles = [c.role for c in columns]
    if "number" not in roles:
        faults.append(
            ImportFault("names no column with a number", "Map at least one column as a number, with its unit.", "mapping.columns")
        )
    for role in ONCE:
        several = [c.header for c in columns if c.role == role]
        if len(several) > 1:
            words = f"maps {len(several)} columns as {WORDS[role]}: {', '.join(plain(h, 40) for h in several)}"
            faults.append(ImportFault(words, "Map one of them so, the others as settings.", "mapping.columns"))
        if several and role in constants:
            faults.append(
                ImportFault(f"has {WORDS[role]} both as a column and for all rows", "Keep one of the two.", f"mapping.constants.{role}")
            )
    return faults


_GUESSES: tuple[tuple[str, str, str, str, str], ...] = (
    # pattern of the header, role, name, unit, nearest metric
    (r"gpu|gpus|card|cards|hardware|device|machine|accelerator", "hardware", "", "", ""),
    (r"model|target|llm|model name", "model", "", "", ""),
    (r"engine|backend|build|runtime|server|version", "engine", "", "", ""),
    (r"mode|method|arm|speculation|spec type|drafter", "arm", "", "", ""),
    (r"contributor|by|user|author|who|reporter", "contributor", "", "", ""),
    (r"notes?|comments?|remarks?|details", "notes", "", "", ""),
    (r"date|when|time|timestamp|measured", "at", "", "", ""),
    (r"concurrency|streams|parallel|np|users|requests at once|max concurrency", "concurrency", "", "", ""),
    (r"prompt tokens|input tokens|isl|pp size|prompt length", "prompt_tokens", "", "", ""),
    (r"output tokens|osl|tg size|generated tokens|output length", "output_tokens", "", "", ""),
    (r"context|ctx|depth|context tokens", "context_tokens", "", "", ""),
    (r"baseline|off|without|without spec.*|no spec.*|base", "number", "Without speculation", "tokens/s", "decode_tokens_per_s"),
    (r"with|on|with spec.*|spec|speculative", "number", "With speculation", "tokens/s", "decode_tokens_per_s"),
    (r"speed ?up|ratio|gain|factor", "number", "Speed-up", "×", "speedup"),
    (r"accept.*|acceptance rate|acc rate", "number", "Acceptance rate", "share", "acceptance_rate"),
    (r"ttft.*|time to first token.*", "number", "TTFT", "ms", "ttft_any_s"),
    (r"tpot.*|time per output token.*", "number", "TPOT", "ms", "token_latency_ms"),
    (r"t/s|tok/s|tokens?/s|tps|speed|tg|generation|throughput|tokens per second|output throughput.*", "number", "Generation", "tokens/s", "decode_tokens_per_s"),
    (r"pp|prompt processing|prefill", "number", "Prompt processing", "tokens/s", ""),
    (r"vram|memory", "setting", "", "", ""),
)  # fmt: skip
_UNIT_IN_HEADER = re.compile(r"[\[(]\s*([^\])]+?)\s*[\])]\s*$|[,_ ]\s*(ms|tok/s|t/s|tokens/s|%|x)\s*$", re.IGNORECASE)


def proposed(headers: Sequence[str], samples: Sequence[Sequence[str]]) -> Mapping:
    """What the columns most likely are, for a person to correct: by their headers, and of numbers by what their cells hold."""
    columns, taken = [], set()
    for i, header in enumerate(headers):
        cells = [row[i] for row in samples if i < len(row)]
        column = _guess(header, cells)
        if column.role in ONCE and column.role in taken:
            column = Column(header, "setting")
        taken.add(column.role)
        columns.append(column)
    return Mapping(tuple(columns))


def _guess(header: str, cells: Sequence[str]) -> Column:
    bare, unit_said = header.strip(), ""
    if found := _UNIT_IN_HEADER.search(bare):
        unit_said = UNIT_WORDS.get((found[1] or found[2]).lower(), "")
        bare = bare[: found.start()] if unit_said else bare
    words = " ".join(re.sub(r"[_\-*†‡]+", " ", bare).lower().split())
    for pattern, role, name, unit, metric in _GUESSES:
        if re.fullmatch(pattern, words):
            if role != "number":
                return Column(header, role)
            unit = unit_said or _unit_in(cells, unit)
            fits = any(_reads(cell, unit) for cell in cells) or not cells
            return Column(header, "number", name, unit, definition=UNTOLD, metric=metric) if fits else Column(header, "setting")
    if unit_said and any(_reads(cell, unit_said) for cell in cells):
        return Column(header, "number", plain(bare, 80), unit_said, definition=UNTOLD)
    return Column(header, "setting")


def _unit_in(cells: Sequence[str], unit: str) -> str:
    """The unit that cells bear themselves, else a share or a percentage by their size, else the usual one."""
    for other in ("%", "×", "tokens/s", "ms", "s"):
        said = [c for c in cells if c.strip().lower() not in MISSING and not _reads(c, unit)]
        if said and all(_reads(c, other) for c in said):
            return other
    return unit


def _reads(cell: str, unit: str) -> bool:
    try:
        return figure(cell, unit) is not None
    except CellWrong:
        return False
