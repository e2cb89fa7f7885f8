"""The experiment that asks again, on another host, exactly what a finished one asked: versions and hashes in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .inventory import RuntimeInfo
from .spec import ExperimentSpec

MAX_NAME = 120


def reproduction(
    spec: ExperimentSpec,
    *,
    workloads: Mapping[str, str],
    target_hash: str,
    draft_hashes: Mapping[str, str],
    runtime: RuntimeInfo | None,
) -> dict[str, Any]:
    """A spec's data with everything pinned that a name could let drift; the seed stays, so orders, prompts and their seeds do.

    ``workloads`` maps the points' names to ``name@version``, ``draft_hashes`` arms to their helper model's hash. Of the build
    version and source commit are asked for; its hash and its backend belong to the machine. Where it shall run is left open.
    """
    data = spec.model_dump(mode="json", exclude_defaults=True)
    data.pop("placement", None)
    data["name"] = _name(spec.name)
    data["seed"] = spec.seed
    if target_hash:
        data["target"] = {"model": target_hash}
    for arm in data["arms"]:
        if sha256 := draft_hashes.get(arm["name"]):
            arm["draft_model"] = sha256
    for point in data["points"]:
        point["workload"] = workloads.get(point["workload"], point["workload"])
    if test := data.get("sampling_test"):
        test["workload"] = workloads.get(test["workload"], test["workload"])
    if runtime is not None:
        found = {"engine": runtime.engine, "version": runtime.version, "source_commit": runtime.source_commit}
        data["runtime"] = {key: value for key, value in found.items() if value}
        if runtime.kind == "attached":
            data["runtime"]["attached"] = True
    return data


def _name(name: str) -> str:
    said = name if name.endswith("(reproduced)") else f"{name} (reproduced)"
    return said if len(said) <= MAX_NAME else name
