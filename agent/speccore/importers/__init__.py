"""Result files of other benchmark tools, read as what those tools say: reported, never verified, never converted.

An importer is one module with ``TOOL``, ``kinds()``, ``looks_like(root)`` and ``read(data)``, and its recorded inputs in tests/imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from speccore.metrics import METRICS

from . import aiperf, benchy, csv_table, guidellm, llama_bench, servebench, speed_bench, vllm_bench
from .mapping import Mapping
from .places import Document, Refused, documents, dotted, text_of, walk
from .shapes import ImportFault, Kind, Number, Reading, Run, refused

__all__ = [
    "TABLE",
    "TOOLS",
    "ImportFault",
    "Importer",
    "Kind",
    "Mapping",
    "Number",
    "Reading",
    "Run",
    "markdown_table",
    "read_file",
    "tool_of",
]


@dataclass(frozen=True)
class Importer:
    """``command`` makes the file that ``read`` takes."""

    slug: str
    title: str
    command: str
    read: Callable[[bytes], Reading]
    looks_like: Callable[[object], bool]
    kinds: Callable[[], list[Kind]]


def _importer(slug: str, module: Any, command: str) -> Importer:
    return Importer(slug, module.TOOL, command, module.read, module.looks_like, module.kinds)


TOOLS: dict[str, Importer] = {
    i.slug: i
    for i in (
        _importer("vllm", vllm_bench, "vllm bench serve … --save-result"),
        _importer("llama-bench", llama_bench, "llama-bench … -o json"),
        _importer("speed-bench", speed_bench, "speed_bench.py … --output FILE"),
        _importer("guidellm", guidellm, "guidellm run … --output kind=json,path=FILE"),
        _importer("aiperf", aiperf, "aiperf profile …, its profile_export_aiperf.json"),
        _importer("llama-benchy", benchy, "llama-benchy … --format json --save-result FILE"),
        _importer("servebench", servebench, "servebench run … --out FILE"),
    )
}
#: A table whose columns a person maps.
TABLE = "table"
#: Tables that these tools write beside the file that says more.
_BESIDE = (
    (re.compile(rb'^\xef?\xbb?\xbf?"?Metric"?,"?avg"?,"?min"?'), "aiperf’s CSV export", "Send profile_export_aiperf.json, which says the units and its version."),
    (re.compile(rb"^level,index,ok,error,"), "servebench’s CSV of single requests", "Send its JSON file, which has the run’s figures."),
    (re.compile(rb"^build_commit,build_number,"), "llama-bench’s CSV", "Run llama-bench with -o json, or map its columns."),
)  # fmt: skip
_SECRET = re.compile(r"api[_-]?key|authorization|hf[_-]?token|access[_-]?token|bearer[_-]?token|password|secret", re.IGNORECASE)
_SECRET_SAID = re.compile(r'"(?:' + _SECRET.pattern + r')"\s*:\s*"[^"*]{4,}', re.IGNORECASE)
_SECRET_FLAG = re.compile(r"--?(?:api[_-]?key|hf-token|header|password)[ =]+['\"]?([^\s'\"*]{6,})", re.IGNORECASE)


def tool_of(data: bytes) -> str:
    """Whose file it is, by what stands in it: a slug of :data:`TOOLS`, :data:`TABLE`, or empty for JSON of nobody known."""
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start not in (b"{", b"["):
        return TABLE
    try:
        root = documents(data)[0].root.value
    except Refused:
        return ""
    return next((slug for slug, i in TOOLS.items() if i.looks_like(root)), "")


def read_file(data: bytes, tool: str = "", mapping: Mapping | None = None) -> Reading:
    """A file as its tool's, by default the one that it looks like; a table needs its mapping. Faults stand in the reading."""
    found = tool or tool_of(data)
    if found == TABLE:
        try:
            text_of(data)
        except Refused as error:
            return refused(TABLE, error.fault)
        if (beside := _beside(data)) and mapping is None:
            return refused(TABLE, beside)
        if mapping is None:
            return refused(TABLE, ImportFault("is a table", "Say what its columns are: a mapping is needed.", "mapping"))
        return csv_table.read(data, mapping)
    if found not in TOOLS:
        return refused("", _unknown(data, tool))
    if secret := _secret(data):
        return refused(TOOLS[found].title, secret)
    return TOOLS[found].read(data)


def _beside(data: bytes) -> ImportFault | None:
    for pattern, what, remedy in _BESIDE:
        if pattern.match(data):
            return ImportFault(f"is {what}", remedy, line=1)
    return None


def _unknown(data: bytes, tool: str) -> ImportFault:
    if tool:
        return ImportFault("is no tool that is known here", f"Known: {', '.join(TOOLS)}, {TABLE}.", "tool", tool[:60])
    try:
        documents(data)
    except Refused as error:
        return error.fault
    names = ", ".join(i.title for i in TOOLS.values())
    return ImportFault("is JSON of no tool that is known here", f"Known: {names}. Or save it as CSV and map its columns.", line=1)


def _secret(data: bytes) -> ImportFault | None:
    """A key or password in the file, which would be kept and handed on with it."""
    try:
        docs: list[Document] = documents(data)
    except Refused:
        return None
    if not _SECRET_SAID.search(text := text_of(data)) and not _SECRET_FLAG.search(text):
        return None
    for doc in docs:
        for path, token, offset in walk(doc.text):
            key = path[-1] if path else ""
            named = isinstance(key, str) and _SECRET.fullmatch(key) and token.startswith('"') and len(token.strip('"* ')) > 3
            if named or (token.startswith('"') and _SECRET_FLAG.search(_unescaped(token))):
                remedy = "Take it out of the file, and make a new one: the file is kept and can be downloaded."
                return ImportFault("holds a key or password", remedy, dotted(path), line=doc.line_at(offset))
    return None


def _unescaped(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token


def markdown_table() -> str:
    """What each tool's numbers are, as it stands in docs/import.md."""
    rows = ["| tool | number | unit | what it is there | nearest of ours | beware |", "|---|---|---|---|---|---|"]
    for importer in TOOLS.values():
        for k in importer.kinds():
            near = METRICS[k.metric].name if k.metric else "none"
            cells = (importer.title, f"{k.name} `{k.key}`", k.unit or "–", k.definition, near, k.caution or "–")
            rows.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(rows)
