"""Jobs on the replayed engine, run by the real agent: real launches, streams and evidence, at the pace of a script."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specagent import evidence, local
from specagent.inventory import Host
from specagent.runtimes import Runtime
from speccore import measure
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import AttemptMeasurement, Check, ComparisonResult, JobAnalysis
from speccore.protocol import Running
from speccore.spec import ExperimentSpec
from speccore.workload import Workload

from tests.agent.conftest import Ran, make_spec
from tests.replay.engine import Script

ENGINE = Path(__file__).resolve().parents[1] / "replay" / "engine.py"


def replayed_host(host: Host, folder: Path, *, build: str = "f", **script: Any) -> Host:
    """The host, with the replayed engine as its only one. ``script``: of :class:`Script` but its file of starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "starts").unlink(missing_ok=True)
    path = Script(starts=str(folder / "starts"), **script).write(folder / "script.json")
    program = folder / "replayed-llama-server"
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, ENGINE, path))
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    real = host.inventory.runtimes[0]
    manifest = {program.name: host.cache.sha256(program)}
    changes = {"version": f"replayed-{build}", "manifest_hash": build * 64, "manifest": manifest, "executable": str(program)}
    info = real.model_copy(update=changes)
    inventory = host.inventory.model_copy(update={"runtimes": [info]})
    return Host(inventory, [Runtime(info, files={program.name: program})], host.gpus, host.cache, host.engine_records)


class Replay:
    """One job, run to its end into ``folder``. The engine of all jobs in one place has one path there, whatever it is."""

    def __init__(
        self,
        host: Host,
        workload: Workload,
        folder: Path,
        *,
        spec: dict[str, Any] | None = None,
        heard: Callable[[Running], None] = lambda running: None,
        build: str = "f",
        **script: Any,
    ) -> None:
        self.spec: ExperimentSpec = make_spec(**(spec or {}))
        self.workloads = {workload.name: workload}
        self.ran = Ran(replayed_host(host, folder.parent / "engine", build=build, **script), self.spec, workload, folder)
        self.ran.tell = heard
        self.finished = self.ran.run()

    def analysis(self) -> JobAnalysis:
        """As the agent alone would compute it, hashes included."""
        return local.analyse(self.ran.offer, self.workloads, self.ran.sink)

    def files(self) -> dict[str, dict[str, bytes]]:
        """The evidence by trial."""
        return {report.trial: evidence.read(folder) for report, folder in self.ran.sink.done if report.outcome == "ok"}

    def folder(self, trial: str) -> Path:
        return next(folder for report, folder in self.ran.sink.done if report.trial == trial)

    def measured_again(self, files: dict[str, dict[str, bytes]]) -> JobAnalysis:
        """From evidence that a test has put together."""
        attempts: list[AttemptMeasurement] = [measure.measure_attempt(f, self.spec, self.workloads) for f in files.values()]
        return analyse_job(self.spec, self.ran.offer.plan, attempts, [], JobFacts(), workloads=self.workloads)


def panel(analysis: JobAnalysis, arm: str = "draft-3", point: int = 0) -> tuple[ComparisonResult, dict[str, Check]]:
    """The arm's comparison at a point, and all checks that it rests on, by name."""
    found = [c for c in analysis.comparisons if c.arm == arm][point]
    return found, {c.name: c for c in [*analysis.checks, *found.checks]}
