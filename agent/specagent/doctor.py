"""What this machine is, what is missing, and how to mend it, for the person who sets an agent up."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .config import Config
from .inventory import Host, NoEngine

_GIB = 1 << 30
_LEAST_FREE = 2 * _GIB

Level = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """``missing`` stands in the way of any job; ``note`` doesn't. ``remedy`` says what to do."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


def findings(config: Config, config_path: Path | None, host: Host, *, enrolled_at: str) -> list[Finding]:
    """``enrolled_at``: the server that this agent has a token for, '' if none."""
    inventory = host.inventory
    libc = inventory.os.get("libc") or "unknown C library"
    found = [
        Finding(
            "ok", "machine", f"{inventory.hostname}, {inventory.os['system']} {inventory.os['release']}, {inventory.os['machine']}, {libc}"
        ),
        Finding("ok", "hardware", f"{inventory.hardware_name()}, {inventory.memory_bytes / _GIB:.1f} GiB of memory"),
        Finding("ok", "configuration", str(config_path) if config_path else "none, defaults are used (see config.example.yaml)"),
        Finding(
            "ok",
            "threads",
            f"an engine gets {inventory.default_threads()} of {inventory.n_cores} cores unless the experiment says otherwise",
        ),
        *_engines(host),
        *_models(host),
        *(Finding("note", "problem", p) for p in inventory.problems),
        *(Finding("note", f"sensor {name}", status) for name, status in inventory.sensors.items() if status != "ok"),
        _disk(config.state_dir),
    ]
    if enrolled_at:
        found.append(Finding("ok", "server", f"enrolled at {enrolled_at}"))
    else:
        found.append(
            Finding("note", "server", "not enrolled: experiments run here only by hand", "specweb-agent enrol --server URL --code CODE")
        )
    return found


def can_run(found: list[Finding]) -> bool:
    return all(f.level != "missing" for f in found)


def _engines(host: Host) -> list[Finding]:
    found = [
        Finding(
            "ok",
            "engine",
            f"{r.info.engine} {r.info.version}, {r.info.backend}, {len(r.info.manifest)} files {r.info.manifest_hash[:12]}, "
            f"speculation: {', '.join(r.info.capabilities.spec_types) or r.info.capabilities.dialect}",
        )
        for r in host.runtimes
    ]
    return found or [Finding("missing", "engine", "no usable engine build", NoEngine.remedy)]


def _models(host: Host) -> list[Finding]:
    found = [
        Finding("ok", "model", f"{m.alias}: {m.architecture} {m.quantization}, {m.size_bytes / 1e6:.1f} MB, {m.manifest_hash[:12]}")
        for m in host.inventory.models
    ]
    remedy = "Name GGUF files in the configuration under models, or their folder under model_folders."
    return found or [Finding("missing", "model", "no model", remedy)]


def _disk(state_dir: Path) -> Finding:
    there = state_dir
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{free / _GIB:.1f} GiB free for {state_dir}"
    if free < _LEAST_FREE:
        return Finding("missing", "disk", text, f"Free {_LEAST_FREE / _GIB:.0f} GiB, or set state_dir to another disk.")
    return Finding("ok", "disk", text)
