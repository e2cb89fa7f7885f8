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

from demo.prompts import count, extraction, free_text, python_code, repo_task, tool_calls, typescript

FOLDER = Path(__file__).resolve().parents[2] / "agent/speccore/workloads"
#: Of so many prompts one is kept for warm-up, all over the tables.
WARMUP_SHARE = 4


def workloads() -> list[Workload]:
    counting = [{"id": name, "prompt": prompt, "check": {"kind": "count", "start": a}} for name, prompt, a in count.prompts()]
    texts = {
        "count": (2, "Counting", "The model continues a number sequence of 75 to 80 numbers: the easiest text to draft.", counting),
        "python-code": (
            2,
            "Python code",
            "The model continues the start of Python code: text with much structure.",
            _asked(python_code.prompts(), "python"),
        ),
        "free-text": (
            2,
            "Free text",
            "The model continues English text of many kinds: text that is hard to draft.",
            _asked(free_text.prompts()),
        ),
        "typescript-refactor": (
            1,
            "TypeScript, reworked",
            "A small piece of TypeScript and a wish: much of the answer stands in the prompt.",
            _asked(typescript.refactor(), "brackets"),
        ),
        "typescript-tests": (
            1,
            "TypeScript, tests for it",
            "Tests for a small piece of TypeScript: new code, with names from the prompt.",
            _asked(typescript.tests(), "brackets"),
        ),
        "json-extract": (
            1,
            "Notes as JSON",
            "A note of daily work is written as JSON with given keys; the value must be right.",
            _expected(extraction.pieces(), "json"),
        ),
        "tool-call": (
            1,
            "Calls of tools",
            "A request and eight tools: the one call that answers it, with its arguments.",
            _expected(tool_calls.pieces(), "tool"),
        ),
    }
    return [*(_workload(name, *rest) for name, rest in texts.items()), _tasks()]


def _tasks() -> Workload:
    words = "An issue in a small repository is read, mended and tested by calls of tools, with the waits that tools take."
    data = {"name": "repo-task", "version": 1, "title": "Tasks in a repository", "description": words}
    return Workload.model_validate(data | {"items": repo_task.tasks(), "warmup": repo_task.warmup()})


def _asked(prompts: Iterable[tuple[str, str]], check: str = "") -> list[dict[str, Any]]:
    return [{"id": name, "prompt": prompt} | ({"check": {"kind": check}} if check else {}) for name, prompt in prompts]


def _expected(pieces: Iterable[tuple[str, str, Any]], check: str) -> list[dict[str, Any]]:
    return [{"id": name, "prompt": prompt, "check": {"kind": check, "expected": value}} for name, prompt, value in pieces]


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
