"""A finished local run as a Markdown report made for pasting: the answer, the table, and all that a reader needs to doubt or repeat it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccore import engines, position_text, settled, table
from speccore.budget import in_words
from speccore.inventory import ModelInfo
from speccore.measurement import Interval, JobAnalysis
from speccore.rendering import render
from speccore.selfrun import JOB, RUN, RunIndex
from speccore.spec import EngineSettings, ExperimentSpec, Point
from speccore.task_text import task_lines
from speccore.yamltext import spec_to_yaml

from .filecache import file_sha256
from .inventory import Host
from .local import LocalRun

_GIB = 1 << 30
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
    spec = told.spec
    parts = [
        f"## {_text(spec.name)}",
        _text(spec.question) if spec.question else "",
        _answers(analysis),
        _table(analysis),
        _width(told, analysis),
        _tasks(analysis),
        _positions(analysis),
        _fit(analysis),
        came_with(analysis),
        _integrity(analysis),
        _quality(analysis),
        _machine(told),
        _held_fixed(spec),
        _commands(told),
        _again(told),
        _evidence(told),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def width_line(analysis: JobAnalysis, n_blocks: int, n_planned: int) -> str:
    """How many blocks were run, and what interval width that bought."""
    halves = [half for c in analysis.comparisons if (half := _half_width(c.speedup)) is not None]
    blocks = f"{n_blocks} block{'' if n_blocks == 1 else 's'}" + (f" of {n_planned} planned" if n_blocks != n_planned else "")
    if not halves:
        return f"{blocks}; no interval (3 blocks are needed)"
    low, high = (f"±{100 * h:.1f} %" for h in (min(halves), max(halves)))
    width = low if low == high else f"{low} to {high}"
    if any(c.look for c in analysis.comparisons):
        return f"{blocks} bought intervals of {width}, each at the confidence of its look"
    return f"{blocks} bought 95 % intervals of {width}"


def _half_width(speedup: object) -> float | None:
    if not isinstance(speedup, Interval) or speedup.low is None or speedup.high is None or speedup.low <= 0:
        return None
    return math.sqrt(speedup.high / speedup.low) - 1


def _tasks(analysis: JobAnalysis) -> str:
    """A list with a line for each arm at each point of tasks."""
    head, *lines = task_lines(analysis).splitlines() or [""]
    return "\n".join([head.capitalize(), "", *(f"- {_text(line.strip())}" for line in lines)]) if lines else ""


def _positions(analysis: JobAnalysis) -> str:
    """A list with a line for each arm with a model drafter at each point."""
    head, *lines = position_text.position_lines(analysis).splitlines() or [""]
    if not lines:
        return ""
    return "\n".join([f"{head[:-1].capitalize()} ({position_text.NOTE}):", "", *(f"- {_text(line.strip())}" for line in lines)])


def _fit(analysis: JobAnalysis) -> str:
    arms = analysis.fit.arms if analysis.fit else []
    return "\n".join(
        [*(["Largest context that loads, tried after the blocks:", ""] if arms else []), *(_text(f"- {a.arm}: {a.words()}") for a in arms)]
    )


def came_with(analysis: JobAnalysis) -> str:
    """What the engine settled otherwise with an arm's speculation than without, each once."""
    lines = dict.fromkeys(line for c in analysis.comparisons for line in settled.lines(c.came_with or [], c.arm))
    head = "What came with speculation, left to the engine in each arm (what the baseline's log doesn't tell may be the same there):"
    return "\n".join([*([head, ""] if lines else []), *(f"- {_text(x)}" for x in lines)])


def _answers(analysis: JobAnalysis) -> str:
    return "\n".join(f"- **{_text(a['point'])}**: {_text(_with_next_step(a))}" for a in analysis.answers)


def _with_next_step(answer: dict[str, Any]) -> str:
    return f"{answer['sentence']}. Next: {answer['next_step']}." if answer.get("next_step") else str(answer["sentence"])


def _table(analysis: JobAnalysis) -> str:
    head = [_text(word) for word in table.head(analysis)]
    rule = ["---" if i in table.LEFT else "---:" for i in range(len(head))]
    rows = [head, rule, *([_text(cell) for cell in table.cells(c)] for c in analysis.comparisons)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _width(told: Told, analysis: JobAnalysis) -> str:
    index = told.index
    took = in_words((index.ended_at - index.started_at).total_seconds())
    budget = f" of {in_words(index.budget_s)} that were given" if index.budget_s else ""
    arms = len(told.spec.arms)
    asked = f"starts the server anew for each of {arms} arms"
    if told.spec.runtime.attached:
        asked = f"asks the {arms} servers that stand for its arms, none of them restarted"
    left = ", ".join(f"{_text(arm)} after block {block}" for arm, block in index.decided.items())
    early = f" Early looks decided arms, which were not started again: {left}." if left else ""
    return (
        f"{width_line(analysis, index.n_blocks, told.spec.blocks)}; each block {asked}, "
        f"in a drawn and balanced order, with the same prompts and seeds. It took {took}{budget}. Speed-up is in seconds for equal "
        f"work; the interval is over blocks.{early}"
    )


def _integrity(analysis: JobAnalysis) -> str:
    first, *rest = table.failed_checks(analysis).split("\n")
    return "\n".join([f"**{_text(first[:1].upper() + first[1:])}.**", *(f"- {_text(line.strip())}" for line in rest)])


def _quality(analysis: JobAnalysis) -> str:
    lines = table.quality_lines(analysis)
    return (
        "\n".join(["**Quality** (not checked is not held; 2 points may be lost).", *(f"- {_text(line)}" for line in lines)])
        if lines
        else ""
    )


def _machine(told: Told) -> str:
    inventory, offer = told.host.inventory, told.done.offer
    runtime = told.host.runtime(offer.runtime_hash).info
    os_name = " ".join(filter(None, (inventory.os.get("system"), inventory.os.get("release"), inventory.os.get("libc"))))
    hardware = f"{inventory.hardware_name()}, {inventory.memory_bytes / _GIB:.0f} GiB of memory"
    caps = {f"{d.power_cap_w:g} W" for d in inventory.devices if d.power_cap_w}
    lines = [
        ("machine", hardware + (f", power cap {', '.join(sorted(caps))}" if caps else "")),
        ("system", os_name + (f", driver {driver}" if (driver := inventory.driver()) else "")),
        ("build", f"{runtime.engine} {runtime.version}, backend {runtime.backend or 'unknown'} (`{runtime.manifest_hash[:12]}`)"),
        ("target", _model(_find(inventory.models, offer.target_hash))),
    ]
    for digest in dict.fromkeys(offer.draft_hashes.values()):
        lines.append(("draft model", _model(_find(inventory.models, digest))))
    return "\n".join(f"- {what}: {_text(words, code=True)}" for what, words in lines)


def _find(models: Iterable[ModelInfo], digest: str) -> ModelInfo | None:
    return next((m for m in models if m.manifest_hash == digest), None)


def _model(model: ModelInfo | None) -> str:
    if model is None:
        return "unknown"
    size = f"{model.n_parameters / 1e9:.2g} B parameters" if model.n_parameters else ""
    facts = ", ".join(filter(None, (model.architecture, model.quantization, size)))
    return f"{model.alias} ({facts}) (`{model.manifest_hash[:12]}`)" if facts else f"{model.alias} (`{model.manifest_hash[:12]}`)"


def _held_fixed(spec: ExperimentSpec) -> str:
    defaults = EngineSettings()
    given = spec.engine.model_dump(exclude={"extra", "start_timeout_s", "probe_timeout_s", "log_verbosity"})
    shown: dict[str, object] = {
        "context": spec.engine.context,
        "slots": spec.engine.slots,
        "prefix_cache": "on" if spec.engine.prefix_cache else "off",
    }
    shown |= {name: value for name, value in given.items() if name not in shown and value != getattr(defaults, name)}
    shown |= dict(spec.engine.extra)
    held = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
    return "\n".join(
        [f"- held fixed: {_text(held)}", *(_text(f"  - {point_words(p, attached=spec.runtime.attached)}") for p in spec.points)]
    )


def point_words(p: Point, *, attached: bool = False) -> str:
    """What is asked at a point, and how its requests come and go. ``attached``: a trial is no start of the server."""
    filled = [f"{p.occupied_context:,} tokens of context occupied"] if p.occupied_context else []
    n = f"{p.n_requests} request{'' if p.n_requests == 1 else 's'} in each {'trial' if attached else 'start'}"
    return ", ".join([f"{p.workload}: temperature {p.sampling.temperature:g}", f"up to {p.max_tokens} tokens", n, *filled, *p.manner])


def _commands(told: Told) -> str:
    """Each arm's command, the paths and the port as names."""
    offer, host = told.done.offer, told.host
    if offer.spec.runtime.attached:
        return "Commands: not known; the servers stood already, started by somebody else."
    info = host.runtime(offer.runtime_hash).info
    threads = offer.spec.engine.threads or host.inventory.default_threads()
    lines = []
    for arm in offer.spec.arms:
        rendered = render(info, offer.spec.engine, arm, engines.SYMBOLIC, allowed_flags=host.inventory.allowed_flags, threads=threads)
        lines += [f"# {arm.name}", " ".join(rendered.argv)]
    return _folded("Commands", "\n".join(["```sh", *lines, "```"]))


def _again(told: Told) -> str:
    yaml_text = spec_to_yaml(told.spec)
    fence = "```"
    while fence in yaml_text:
        fence += "`"
    named = "the models, and under `servers` one server for each arm," if told.spec.runtime.attached else "the models"
    text = (
        f"`pip install specweb-agent=={told.index.agent_version}`, name {named} in its configuration, save this as `experiment.yaml`, "
        f"and `specweb-agent run experiment.yaml`. The prompts come with the agent.\n\n{fence}yaml\n{yaml_text}{fence}"
    )
    return _folded("How to repeat it", text)


def _evidence(told: Told) -> str:
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
    return _folded("Evidence", "\n".join(lines))


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _text(text: str, *, code: bool = False) -> str:
    """Text that Markdown shows as it stands: what a person named can't turn into markup or another cell."""
    special = r"\|*_<>[]" + ("" if code else "`")
    return "".join(f"\\{c}" if c in special else c for c in text).replace("\n", " ")
