"""What commands share that start single arms of an experiment, and make no run of it: fit, break-even, sampling-test."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from speccore.errors import SpecError
from speccore.spec import ExperimentSpec
from speccore.workloads import builtin

from . import __version__, evidence, local, runner
from .config import find_config, load_config
from .filecache import FileCache
from .inventory import take_inventory
from .prepared import PreparedJob
from .sweep import sweep_records
from .terminal import HashProgress


def prepared_arms(args: argparse.Namespace, spec: ExperimentSpec, arms: Collection[str]) -> PreparedJob:
    """The experiment's baseline and ``arms``, ready to start here; what others need, this host may lack.

    Raises what stands in the way, as :func:`local.make_offer` and :func:`runner.prepare` do.
    """
    config = load_config(args.config or find_config())
    host = take_inventory(config, FileCache(config.state_dir / "files.json", HashProgress()))
    if host.engine_records:
        sweep_records(host.engine_records, host.container_engines())
    only = spec.model_copy(update={"arms": [a for a in spec.arms if a.is_baseline or a.name in arms], "fit": False})
    offer = local.make_offer(only, host, builtin())
    return runner.prepare(offer, {name: builtin()[name] for name in offer.plan.workloads}, host)


def check_writable(json_file: Path | None) -> None:
    """Before anything is started. Raises :class:`SpecError` where the file's folder is not there."""
    if json_file and not json_file.resolve().parent.is_dir():
        raise SpecError(f"--json {json_file}: there is no such folder", remedy="Make the folder first.")


def used(job: PreparedJob) -> dict[str, Any]:
    """By hash, what an answer was found with."""
    return {"runtime": job.offer.runtime_hash, "target": job.offer.target_hash, "drafts": job.offer.draft_hashes}


def write_json(json_file: Path | None, kind: str, found: dict[str, Any]) -> None:
    """Nothing without a file."""
    if json_file:
        data = {"kind": f"specweb-{kind}", "version": 1, "agent_version": __version__} | found
        evidence.write_whole(json_file.resolve(), json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n")
