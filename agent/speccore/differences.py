"""What trials differ in beside speculation, in words: the setting, file or build by its name, and the two values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from . import settled

#: Parts of the comparison key (``AttemptMeasurement.pair_fields``) as people call them.
_WORDS = {
    "engine": "engine",
    "engine_settings": "engine settings",
    "boot_id": "start of the machine",
    "os": "operating system",
    "runtime_hash": "engine build",
    "runtime_version": "engine version",
    "target_hash": "target model",
    "agent_version": "version of the agent",
    "inventory_hash": "inventory of the host",
    "command": "command",
    "environment": "environment",
    "served": "what the server says of itself",
}
_HASH = re.compile(r"[0-9a-f]{32,}")
_MOST = 40  # characters of a value


def field_words(name: str) -> str:
    if name.startswith(settled.PAIR_PREFIX):
        return f"{settled.words(name.removeprefix(settled.PAIR_PREFIX))}, as the engine settled it"
    return f"workload {name.removeprefix('workload:')}" if name.startswith("workload:") else _WORDS.get(name, name.replace("_", " "))


def difference(name: str, by_trial: Mapping[str, str]) -> str:
    """``engine settings: context 512 in b1-off against context 1024 in b1-draft``: the first two values that differ."""
    first: dict[str, str] = {}
    for trial, value in by_trial.items():
        first.setdefault(value, trial)
    (one, one_trial), (other, other_trial) = list(first.items())[:2]
    shown, against = _narrowed(one, other)
    return f"{field_words(name)}: {shown} in {one_trial} against {against} in {other_trial}"


def _narrowed(one: str, other: str) -> tuple[str, str]:
    """Of settings and commands only what differs, since their whole text is too long to compare by eye."""
    try:
        a, b = json.loads(one), json.loads(other)
    except ValueError:
        return _short(one), _short(other)
    if isinstance(a, dict) and isinstance(b, dict):
        names = [n for n in sorted({*a, *b}) if a.get(n) != b.get(n)]
        return _short(_settings(a, names)), _short(_settings(b, names))
    if isinstance(a, list) and isinstance(b, list):
        before = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        after = next(
            (i for i, (x, y) in enumerate(zip(reversed(a[before:]), reversed(b[before:]))) if x != y), min(len(a), len(b)) - before
        )
        flag = [x for x in a[before - 1 : before] if str(x).startswith("-")]
        shown = ([*flag, *side[before : len(side) - after]] for side in (a, b))
        first, second = (" ".join(map(str, words)) for words in shown)
        return _short(first), _short(second)
    return _short(one), _short(other)


def _settings(values: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{n.replace('_', ' ')} {values.get(n, 'unset')}" for n in names)


def _short(value: str) -> str:
    """Of a hash its first 12 digits, as pages show it."""
    value = _HASH.sub(lambda found: found[0][:12], value)
    return (value if len(value) <= _MOST else f"{value[: _MOST - 1]}…") or "nothing"
