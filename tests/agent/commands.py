"""The agent's command line as a process of its own, and a small experiment for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SMALL = {
    "name": "small",
    "target": {"model": "target"},
    "engine": {"context": 512},
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 16, "probes": 2}],
    "blocks": 3,
    "warmup": {"mode": "fixed"},
}


def command(*args: object) -> list[str]:
    return [str(Path(sys.executable).with_name("specweb-agent")), *map(str, args)]


def call(*args: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=120, env=os.environ | (env or {}))
