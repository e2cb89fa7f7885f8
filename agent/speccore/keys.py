"""The two keys of a comparison: what must be equal inside a ratio, and what groups finished ratios across hosts."""

from __future__ import annotations

from collections.abc import Mapping

from .canonical import sha256_of
from .spec import Arm, EngineSettings, Point

#: Settings that change what is computed, not only how fast: they belong to the question.
WORK_SETTINGS = ("context", "kv_type_k", "kv_type_v")


def pair_key(fields: Mapping[str, str]) -> str:
    """Key of everything but speculation: host, boot, runtime, driver, hashes, settings (``AttemptMeasurement.pair_fields``)."""
    return sha256_of(dict(fields))


def question_key(
    *, target_hash: str, engine: str, arm: Arm, point: Point, workload_hash: str, settings: EngineSettings, draft_hash: str = ""
) -> str:
    """Key under which hosts answer the same question. Build, backend, driver and hardware are left out: they are columns.

    The arm counts by its settings and by its helper's hash; its name, and the alias that a host gave the helper, do not.
    """
    return sha256_of(
        {
            "target": target_hash,
            "engine": engine,
            "arm": arm.model_dump(mode="json", exclude={"name", "draft_model"}) | {"draft": draft_hash},
            "point": point.model_dump(mode="json", exclude={"workload", "probes"}),
            "workload": workload_hash,
            "settings": {name: getattr(settings, name) for name in WORK_SETTINGS},
        }
    )
