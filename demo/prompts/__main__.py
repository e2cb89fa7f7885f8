"""Writes the built-in prompt sets from their tables: ``python -m demo.prompts [FOLDER]``.

A published version never changes: a changed table means another version here, and its older file stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from speccore.workload import Workload

from demo.prompts import count, free_text, python_code

FOLDER = Path(__file__).resolve().parents[2] / "agent/speccore/workloads"
#: Of so many prompts one is kept for warm-up, all over the tables.
WARMUP_SHARE = 4


def workloads() -> list[Workload]:
    counting = [{"id": name, "prompt": prompt, "check": {"kind": "count", "start": a}} for name, prompt, a in count.prompts()]
    code = [{"id": name, "prompt": prompt, "check": {"kind": "python"}} for name, prompt in python_code.prompts()]
    prose = [{"id": name, "prompt": prompt} for name, prompt in free_text.prompts()]
    return [
        _workload(
            "count", 2, "Counting", "The model continues a number sequence of 75 to 80 numbers: the easiest text to draft.", counting
        ),
        _workload("python-code", 2, "Python code", "The model continues the start of Python code: text with much structure.", code),
        _workload("free-text", 2, "Free text", "The model continues English text of many kinds: text that is hard to draft.", prose),
    ]


def _workload(name: str, version: int, title: str, description: str, prompts: Iterable[dict[str, Any]]) -> Workload:
    items: list[dict[str, Any]] = []
    warmup: list[dict[str, Any]] = []
    for i, item in enumerate(prompts):
        (warmup if i % WARMUP_SHARE == WARMUP_SHARE - 1 else items).append(item)
    return Workload.model_validate(
        {"name": name, "version": version, "title": title, "description": description, "items": items, "warmup": warmup}
    )


def file_of(workload: Workload) -> str:
    return f"{workload.name}.json" if workload.version == 1 else f"{workload.name}-{workload.version}.json"


def text_of(workload: Workload) -> str:
    """JSON with a line for each item, so that a change shows as one."""
    data = workload.model_dump(mode="json", exclude_none=True)
    head = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}," for k, v in data.items() if k not in ("items", "warmup")]
    parts = []
    for group in ("items", "warmup"):
        lines = ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in data[group])
        parts.append(f' "{group}": [\n{lines}\n ]')
    return "{\n" + "\n".join([*head, ",\n".join(parts)]) + "\n}\n"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for workload in workloads():
        (folder / file_of(workload)).write_text(text_of(workload), encoding="utf-8")
        print(f"{workload.ref}: {len(workload.items)} prompts, {len(workload.warmup)} for warm-up")


if __name__ == "__main__":
    main()
