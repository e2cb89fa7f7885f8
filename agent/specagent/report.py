"""A finished local run as a Markdown report made for pasting: what :mod:`speccore.report` tells, how to repeat it, and its hashes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from speccore import engines, report
from speccore.inventory import ModelInfo
from speccore.markdown import Part, fenced, folded, joined
from speccore.measurement import JobAnalysis
from speccore.rendering import render
from speccore.selfrun import JOB, RUN, RunIndex
from speccore.spec import ExperimentSpec
from speccore.yamltext import spec_to_yaml

from .filecache import file_sha256
from .inventory import Host
from .local import LocalRun

_MOST_HASHES = 20  # shown; a longer list is in nobody's interest


@dataclass(frozen=True)
class Told:
    """A run with what its report tells of the machine; ``out`` is its folder, where :data:`RUN` lies already."""

    done: LocalRun
    index: RunIndex
    host: Host
    out: Path

    @property
    def spec(self) -> ExperimentSpec:
        return self.done.offer.spec


def markdown(told: Told, analysis: JobAnalysis) -> str:
    return joined([*report.parts(_ran(told), analysis), _again(told), _evidence(told)], "The run's folder has all of it.")


def _ran(told: Told) -> report.Ran:
    offer, host, index = told.done.offer, told.host, told.index
    return report.Ran(
        spec=told.spec,
        inventory=host.inventory,
        runtime=host.runtime(offer.runtime_hash).info,
        target=_find(host.inventory.models, offer.target_hash),
        drafts=[m for digest in dict.fromkeys(offer.draft_hashes.values()) if (m := _find(host.inventory.models, digest))],
        commands=_commands(told),
        n_blocks=index.n_blocks,
        took_s=(index.ended_at - index.started_at).total_seconds(),
        budget_s=index.budget_s,
        decided=index.decided,
    )


def _find(models: Iterable[ModelInfo], digest: str) -> ModelInfo | None:
    return next((m for m in models if m.manifest_hash == digest), None)


def _commands(told: Told) -> dict[str, list[str]]:
    """Each arm's command, the paths and the port as names."""
    offer, host = told.done.offer, told.host
    if offer.spec.runtime.attached:
        return {}
    info = host.runtime(offer.runtime_hash).info
    threads = offer.spec.engine.threads or host.inventory.default_threads()
    found = {}
    for arm in offer.spec.arms:
        rendered = render(info, offer.spec.engine, arm, engines.SYMBOLIC, allowed_flags=host.inventory.allowed_flags, threads=threads)
        found[arm.name] = rendered.argv
    return found


def _again(told: Told) -> Part:
    named = "the models, and under `servers` one server for each arm," if told.spec.runtime.attached else "the models"
    text = (
        f"`pip install specweb-agent=={told.index.agent_version}`, name {named} in its configuration, save this as `experiment.yaml`, "
        f"and `specweb-agent run experiment.yaml`. The prompts come with the agent.\n\n{fenced(spec_to_yaml(told.spec), 'yaml')}"
    )
    return Part("how to repeat it", [text], rank=3, around=folded("How to repeat it"))


def _evidence(told: Told) -> Part:
    n_files = sum(len(r.evidence) for r in told.done.reports)
    reports = [f"attempts/{a.trial}.{a.n}/report.json" for a in told.index.attempts]
    lines = [
        f"{n_files} raw files of {len(reports)} attempts; each report has the hash of each file of its attempt.",
        "",
        "| file | SHA-256 |",
        "| --- | --- |",
        *(f"| {name} | `{file_sha256(told.out / name)}` |" for name in (RUN, JOB, *reports[:_MOST_HASHES])),
        *([f"\n… and {len(reports) - _MOST_HASHES} more reports, which `{RUN}` names"] if len(reports) > _MOST_HASHES else []),
    ]
    return Part("evidence", lines, rank=2, around=folded("Evidence"))
