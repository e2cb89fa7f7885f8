"""A file of prompts, one JSON object a line, as a workload: read with all its faults at once, and what is worth knowing of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .dealing import DISTINCT_BYTES
from .prompt_lines import KEYS, KINDS, WARMUP, Line, problem, read_line
from .settling import LEAST
from .spec import SpecProblem
from .spec_words import shown
from .workload import Item, Workload

MAX_BYTES = 4 * 1024**2
MAX_LINES = 2_000
MOST_TOLD = 100
#: Fewer distinct prompts say something of themselves only.
FEW = 8
#: Where no line is marked as warm-up, every so-manieth is reserved, until there are enough.
RESERVED_EVERY, RESERVED_MOST = 4, 10
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_TITLE = re.compile("[^\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*")
_SPREAD = re.compile(rb"\{[ \t\r]*\n")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class PromptFile:
    """``workload`` is None if there are problems; of these the first are listed, and all are counted."""

    workload: Workload | None
    problems: list[SpecProblem] = field(default_factory=list)
    n_problems: int = 0
    warnings: list[str] = field(default_factory=list)


def read_prompt_file(data: bytes, *, name: str, version: int = 1, title: str = "", description: str = "") -> PromptFile:
    """``data`` is JSONL in UTF-8. A line asks by ``prompt``, ``messages`` or ``turns``; blank lines are skipped."""
    problems = list(_named_wrongly(name, title, description))
    lines: list[Line] = []
    for found in _lines(data):
        if isinstance(found, Line):
            lines.append(found)
        else:
            problems += found
    problems += _between(lines)
    if not problems and not lines:
        problems.append(SpecProblem(field="file", message='holds no prompt: write one JSON object a line, such as {"prompt": "…"}'))
    if not problems and len({line.warmup for line in lines}) == 1 and (lines[0].warmup or len(lines) < 2):
        words = (
            "every line is warm-up, and nothing is left to time"
            if lines[0].warmup
            else "one prompt is not enough: one warms up, others are timed"
        )
        problems.append(SpecProblem(field="file", message=f"{words}. Add lines"))
    if problems:
        problems.sort(key=lambda p: p.line or 0)
        return PromptFile(None, problems[:MOST_TOLD], len(problems))
    items, warmup = _dealt(lines)
    content = Workload(name=name, version=version, title=title or name, description=description, items=items, warmup=warmup)
    return PromptFile(content, warnings=list(_warnings(content, marked=any(line.warmup for line in lines))))


def prompt_lines_of(content: Workload) -> Iterator[dict[str, object]]:
    """The workload as objects of such a file, which reads as the same items again."""
    for item, warmup in [*((i, False) for i in content.items), *((i, True) for i in content.warmup)]:
        data = {k: v for k, v in item.model_dump(mode="json").items() if v is not None}
        if item.history:
            data["messages"] = [*data.pop("history"), {"role": "user", "content": data.pop("prompt")}]
        yield data | ({WARMUP: True} if warmup else {})


def _named_wrongly(name: str, title: str, description: str) -> Iterator[SpecProblem]:
    if not _NAME.fullmatch(name):
        words = "is up to 80 lower-case letters, digits and dashes, and begins with a letter or digit, such as support-chats"
        yield SpecProblem(field="name", message=words if name else f"is required: it {words}", value=shown(name) if name else "")
    for key, text, most in (("title", title, 120), ("description", description.replace("\n", " ").replace("\t", " "), 2_000)):
        if len(text) > most:
            yield SpecProblem(field=key, message=f"has {len(text):,} characters; at most {most:,} are kept: shorten it")
        elif not _TITLE.fullmatch(text):
            yield SpecProblem(field=key, message="holds a control character or half of one: remove it", value=shown(text))


def _lines(data: bytes) -> Iterator[Line | list[SpecProblem]]:
    whole = _not_lines(data)
    if whole:
        yield [SpecProblem(field="file", message=whole)]
        return
    n_read = 0
    for n, text in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not text.strip():
            continue
        n_read += 1
        if n_read > MAX_LINES:
            yield [SpecProblem(field="file", message=f"has more than {MAX_LINES:,} prompts: split it into several workloads", line=n)]
            return
        yield read_line(n, text)


def _not_lines(data: bytes) -> str:
    """Why it is no such file at all; empty if it may be one."""
    if len(data) > MAX_BYTES:
        return f"has {len(data):,} bytes or more; at most {MAX_BYTES:,} are read: split it into several workloads"
    if data.startswith(_UTF16):
        return "is UTF-16 text: save it as UTF-8"
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        return "is one JSON array: write each of its objects on a line of its own (jq -c '.[]' does that)"
    if _SPREAD.match(start):
        return "is JSON over several lines: write each object on one line (jq -c . does that)"
    return ""


def _between(lines: Sequence[Line]) -> Iterator[SpecProblem]:
    """What is wrong with a line only beside another one."""
    ids: dict[str, int] = {}
    starts: dict[bytes, Line] = {}
    tasks = {bool(line.item.turns): line.n for line in reversed(lines)}
    if len(tasks) > 1:
        later = max(tasks.values())
        words = f"single prompts and tasks of several turns don’t go into one workload: line {min(tasks.values())} is of the other kind. Make two"
        yield problem(later, "turns" if tasks[True] == later else KINDS[0], words)
    for line in lines:
        if (first := ids.setdefault(line.item.id, line.n)) != line.n:
            yield problem(line.n, "id", f"is that of line {first} already: give another, or leave it out", line.item.id)
        start = line.item.opening.encode()[:DISTINCT_BYTES]
        other = starts.setdefault(start, line)
        if other is not line:
            same = "asks the same as" if _asked(other.item) == _asked(line.item) else f"begins with the same {DISTINCT_BYTES} bytes as"
            words = f"{same} line {other.n}, and no two requests of a start may: drafters and caches learn from repeats. Remove one, or begin it otherwise"
            yield problem(line.n, line.kind, words, line.item.opening)


def _asked(item: Item) -> object:
    return item.turns or item.messages


def _dealt(lines: Sequence[Line]) -> tuple[list[Item], list[Item]]:
    """(timed, warm-up). Lines that are marked warm up; where none is, every fourth does until there are ten, or else the last."""
    if any(line.warmup for line in lines):
        return [line.item for line in lines if not line.warmup], [line.item for line in lines if line.warmup]
    reserved = set(range(RESERVED_EVERY - 1, len(lines), RESERVED_EVERY)) or {len(lines) - 1}
    reserved = set(sorted(reserved)[:RESERVED_MOST])
    return [x.item for i, x in enumerate(lines) if i not in reserved], [x.item for i, x in enumerate(lines) if i in reserved]


def _warnings(content: Workload, *, marked: bool) -> Iterator[str]:
    if not marked:
        n = len(content.warmup)
        yield (
            f"No line says “{WARMUP}”: true, so {n} prompt{'s are' if n > 1 else ' is'} reserved for warm-up: "
            f"every {RESERVED_EVERY}th, up to {RESERVED_MOST}. No probe asks {'them' if n > 1 else 'it'}."
        )
    if len(content.items) < FEW:
        yield f"Distinct prompts to time: {len(content.items)}. Below {FEW}, what is found holds for these prompts only."
    if len(content.warmup) < LEAST:
        yield (
            f"Warm-up prompts: {len(content.warmup)}. To see whether the speed has settled takes {LEAST} at each point: "
            "mark more lines, or set warmup.mode to fixed."
        )
    if any(item.history for item in content.items):
        yield "Chats go by the model’s own chat template where a point says thinking true or false; else their messages follow each other as bare text."


__all__ = ["FEW", "KEYS", "MAX_BYTES", "MAX_LINES", "PromptFile", "prompt_lines_of", "read_prompt_file"]
