"""The built-in prompt sets, as data of this package. A changed set gets a new version; old versions stay."""

from __future__ import annotations

from functools import cache
from importlib import resources

from ..workload import Workload


def builtin() -> dict[str, Workload]:
    """Every built-in workload under its reference (``count@1``), and the latest of each name under the bare name."""
    found: dict[str, Workload] = {}
    for workload in _all():
        found[workload.ref] = workload
        if workload.name not in found or found[workload.name].version < workload.version:
            found[workload.name] = workload
    return found


@cache
def _all() -> tuple[Workload, ...]:
    files = sorted((f for f in resources.files(__package__).iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(Workload.model_validate_json(f.read_bytes()) for f in files)
