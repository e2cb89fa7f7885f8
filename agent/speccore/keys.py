"""The two keys of a comparison: what must be equal inside a ratio, and what groups finished ratios across hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .canonical import sha256_of
from .spec import Arm, EngineSettings, Point

#: Settings that change what is computed, not only how fast: they belong to the question.
WORK_SETTINGS = ("context", "kv_type_k", "kv_type_v", "prefix_cache")
#: Of an arm: its names, and where and by how many threads its helper runs. A host's matter, as of the target.
NOT_OF_THE_ARM = {"name", "draft_model", "draft_threads", "draft_gpu_layers", "draft_device"}
#: Of a point: the name of its work, which stands by its hash, and how many samples are taken.
NOT_OF_THE_POINT = {"workload", "probes"}
ARM = "arm."


def pair_key(fields: Mapping[str, str]) -> str:
    """Key of everything but speculation: host, boot, runtime, driver, hashes, settings (``AttemptMeasurement.pair_fields``)."""
    return sha256_of(dict(fields))


def question_fields(
    *, target_hash: str, engine: str, arm: Arm, point: Point, workload_hash: str, settings: EngineSettings, draft_hash: str = ""
) -> dict[str, Any]:
    """What the question key is made of: name → value, e.g. ``arm.draft_limit``, ``point.sampling.temperature``.

    What is unset (None, False, empty) doesn't count, so that a field that is added later changes no key until somebody sets
    it. A helper whose file nobody could look at counts by its name.
    """
    helper = draft_hash or (f"named {arm.draft_model}" if arm.draft_model else "")
    parts = {
        "target": target_hash,
        "engine": engine,
        "workload": workload_hash,
        "settings": {name: getattr(settings, name) for name in WORK_SETTINGS},
        "point": point.model_dump(mode="json", exclude=NOT_OF_THE_POINT),
        "arm": arm.model_dump(mode="json", exclude=NOT_OF_THE_ARM) | {"draft": helper},
    }
    return dict(_flat(parts))


def _flat(parts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in parts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value is not None and value is not False and value not in ("", []):
            yield before + name, value


def question_key(
    *, target_hash: str, engine: str, arm: Arm, point: Point, workload_hash: str, settings: EngineSettings, draft_hash: str = ""
) -> str:
    """Key under which hosts answer the same question. Build, backend, driver and hardware are left out: they are columns.

    The arm counts by its settings and by its helper's hash; its name, and the alias that a host gave the helper, do not.
    """
    return key_of(
        question_fields(
            target_hash=target_hash,
            engine=engine,
            arm=arm,
            point=point,
            workload_hash=workload_hash,
            settings=settings,
            draft_hash=draft_hash,
        )
    )


def key_of(fields: Mapping[str, Any]) -> str:
    """The question key of its fields."""
    return sha256_of(dict(fields))


def work_key(fields: Mapping[str, Any]) -> str:
    """Key of a question without its arm: under it, arms stand side by side."""
    return sha256_of({name: value for name, value in fields.items() if not name.startswith(ARM)})
