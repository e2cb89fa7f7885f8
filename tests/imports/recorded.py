"""The recorded result files of other tools, and ways to break them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "files"
#: File: its tool, how many runs it holds.
RECORDED = {
    "aiperf-0.13-four-tokens-an-event.json": ("aiperf", 1),
    "aiperf-0.13-llama-server.json": ("aiperf", 1),
    "benchy-0.4-four-tokens-an-event.json": ("llama-benchy", 1),
    "benchy-0.4-llama-server.json": ("llama-benchy", 4),
    "guidellm-0.8-llama-server.json": ("guidellm", 1),
    "llama-bench-b11434.json": ("llama-bench", 6),
    "llama-bench-b11434.jsonl": ("llama-bench", 2),
    "servebench-1.1-four-tokens-an-event.json": ("servebench", 1),
    "servebench-1.1-llama-server.json": ("servebench", 2),
    "speed-bench-b11434.json": ("speed-bench", 3),
    "vllm-0.32-four-tokens-an-event.json": ("vllm", 1),
    "vllm-0.32-ngram.json": ("vllm", 1),
    "vllm-0.32-off.json": ("vllm", 1),
}
#: One file of each tool.
ONE_OF_EACH = {slug: name for name, (slug, _) in RECORDED.items() if name.endswith(".json")}


def content(name: str) -> bytes:
    return (FILES / name).read_bytes()


def changed(name: str, path: str, value: Any) -> bytes:
    """The file with another value at a dotted path; ``...`` takes the key away."""
    whole = json.loads(content(name))
    place, keys = whole, path.split(".")
    for key in keys[:-1]:
        place = place[int(key) if isinstance(place, list) else key]
    last: Any = int(keys[-1]) if isinstance(place, list) else keys[-1]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(whole, indent=1).encode()
