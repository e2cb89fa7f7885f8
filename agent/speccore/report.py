"""A finished experiment as a report for pasting: the answer, the table, and what a reader needs to doubt it. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import position_text, settled, table
from .inventory import HostInventory, ModelInfo, RuntimeInfo
from .markdown import Part, code, fenced, folded, paragraph, table_row, text
from .measurement import Interval, JobAnalysis
from .spans import in_words
from .spec import EngineSettings, ExperimentSpec, Point
from .task_text import task_lines

_GIB = 1 << 30


@dataclass(frozen=True)
class Ran:
    """A job that has ended. ``commands``: arm → its symbolic command; None, of what nobody knows any more."""

    spec: ExperimentSpec
    inventory: HostInventory | None
    runtime: RuntimeInfo | None
    target: ModelInfo | None
    drafts: Sequence[ModelInfo]
    commands: Mapping[str, Sequence[str]]
    n_blocks: int
    took_s: float | None = None
    budget_s: float | None = None
    decided: Mapping[str, int] = field(default_factory=dict)  # by early looks: arm → block


def parts(ran: Ran, analysis: JobAnalysis) -> list[Part]:
    """From the question to the commands; what is told least often is left out first where room lacks."""
    spec = ran.spec
    return [
        Part("name", [f"## {text(spec.name)}"]),
        Part("question", [paragraph(spec.question)] if spec.question else []),
        Part("answers", _answers(analysis)),
        _table(analysis),
        Part("how it was run", [_width(ran, analysis)]),
        Part("tasks", _tasks(analysis), rank=7),
        Part("largest contexts", _fit(analysis), rank=6),
        Part("integrity", [_integrity(analysis)]),
        Part("machine", _machine(ran)),
        Part("held fixed", _held_fixed(spec), rank=9),
        Part("what the checks say", _checks(analysis), rank=8, around=folded("What the checks say")),
        Part("quality", _quality(analysis), rank=8, around=folded("Quality")),
        Part("positions", _positions(analysis), rank=4, around=folded("Accepted by position in the draft")),
        Part("what came with speculation", came_with(analysis).splitlines(), rank=5, around=folded("What came with speculation")),
        _commands(ran),
    ]


def width_line(analysis: JobAnalysis, n_blocks: int, n_planned: int) -> str:
    """How many blocks were run, and what interval width that bought."""
    halves = [half for c in analysis.comparisons if (half := _half_width(c.speedup)) is not None]
    blocks = f"{n_blocks} block{'' if n_blocks == 1 else 's'}" + (f" of {n_planned} planned" if n_blocks < n_planned else "")
    if not halves:
        return f"{blocks}; no interval (3 blocks are needed)"
    low, high = (f"±{100 * h:.1f} %" for h in (min(halves), max(halves)))
    width = low if low == high else f"{low} to {high}"
    if any(c.look for c in analysis.comparisons):
        return f"{blocks} bought intervals of {width}, each at the confidence of its look"
    if any(c.joined for c in analysis.comparisons):
        return f"{blocks} bought intervals of {width}, at the confidence that the verdict names"
    return f"{blocks} bought 95 % intervals of {width}"


def _half_width(speedup: object) -> float | None:
    if not isinstance(speedup, Interval) or speedup.low is None or speedup.high is None or speedup.low <= 0:
        return None
    return math.sqrt(speedup.high / speedup.low) - 1


def _answers(analysis: JobAnalysis) -> list[str]:
    return [f"- **{text(a['point'])}**: {text(_with_next_step(a))}" for a in analysis.answers]


def _with_next_step(answer: dict[str, Any]) -> str:
    return f"{answer['sentence']}. Next: {answer['next_step']}." if answer.get("next_step") else str(answer["sentence"])


def _table(analysis: JobAnalysis) -> Part:
    head = [text(word) for word in table.head(analysis)]
    rule = ["---" if i in table.LEFT else "---:" for i in range(len(head))]
    rows = [table_row(map(text, table.cells(c))) for c in analysis.comparisons]
    return Part("table", rows, head=f"{table_row(head)}\n{table_row(rule)}")


def _width(ran: Ran, analysis: JobAnalysis) -> str:
    arms = len(ran.spec.arms)
    asked = f"starts the server anew for each of {arms} arms"
    if ran.spec.runtime.attached:
        asked = f"asks the {arms} servers that stand for its arms, none of them restarted"
    budget = f" of {in_words(ran.budget_s)} that were given" if ran.budget_s else ""
    took = f" It took {in_words(ran.took_s)}{budget}." if ran.took_s is not None else ""
    left = ", ".join(f"{text(arm)} after block {block}" for arm, block in ran.decided.items())
    early = f" Early looks decided arms, which were not started again: {left}." if left else ""
    return (
        f"{width_line(analysis, ran.n_blocks, ran.spec.blocks)}; each block {asked}, "
        f"in a drawn and balanced order, with the same prompts and seeds.{took} Speed-up is in seconds for equal "
        f"work; the interval is over blocks.{early}"
    )


def _tasks(analysis: JobAnalysis) -> list[str]:
    """A line for each arm at each point of tasks."""
    head, *lines = task_lines(analysis).splitlines() or [""]
    return [head.capitalize(), "", *(f"- {text(line.strip())}" for line in lines)] if lines else []


def _positions(analysis: JobAnalysis) -> list[str]:
    """A line for each arm with a model drafter at each point."""
    head, *lines = position_text.position_lines(analysis).splitlines() or [""]
    return [f"{head[:-1].capitalize()} ({position_text.NOTE}):", "", *(f"- {text(line.strip())}" for line in lines)] if lines else []


def _fit(analysis: JobAnalysis) -> list[str]:
    arms = analysis.fit.arms if analysis.fit else []
    return (
        ["Largest context that loads, tried after the blocks:", "", *(f"- {text(f'{a.arm}: {a.words()}')}" for a in arms)] if arms else []
    )


def came_with(analysis: JobAnalysis) -> str:
    """What the engine settled otherwise with an arm's speculation than without, each once."""
    lines = dict.fromkeys(line for c in analysis.comparisons for line in settled.lines(c.came_with or [], c.arm))
    head = "What came with speculation, left to the engine in each arm (what the baseline's log doesn't tell may be the same there):"
    return "\n".join([*([head, ""] if lines else []), *(f"- {text(x)}" for x in lines)])


def _integrity(analysis: JobAnalysis) -> str:
    """How many checks there were and which did not pass, by name, in one line."""
    states: dict[str, set[str]] = {}
    for check in [*analysis.checks, *(c for comparison in analysis.comparisons for c in comparison.checks)]:
        state = f"{check.kind} {check.state}" if check.state == "failed" else check.state
        states.setdefault(check.name, set()).add(state)
    named = {s: [text(name) for name, found in states.items() if s in found] for s in ("hard failed", "soft failed", "not checked")}
    hard, soft, unchecked = named.values()
    words = [f"failed: {', '.join(hard)}" if hard else "no hard check failed"]
    words += [f"warnings: {', '.join(soft)}"] if soft else []
    words += [f"not checked everywhere: {', '.join(unchecked)}"] if unchecked else []
    return f"**Integrity** ({len(states)} checks): {'; '.join(words)}."


def _checks(analysis: JobAnalysis) -> list[str]:
    """The sentence of each that failed."""
    _, *rest = table.failed_checks(analysis).split("\n")
    return [f"- {text(line.strip())}" for line in rest if not line.startswith("  not checked:")]


def _quality(analysis: JobAnalysis) -> list[str]:
    lines = [f"- {text(line)}" for line in table.quality_lines(analysis)]
    return ["**Quality** (not checked is not held; 2 points may be lost).", *lines] if lines else []


def _machine(ran: Ran) -> list[str]:
    found = []
    if inventory := ran.inventory:
        os_name = " ".join(filter(None, (inventory.os.get("system"), inventory.os.get("release"), inventory.os.get("libc"))))
        hardware = f"{inventory.hardware_name()}, {inventory.memory_bytes / _GIB:.0f} GiB of memory"
        caps = {f"{d.power_cap_w:g} W" for d in inventory.devices if d.power_cap_w}
        found.append(("machine", text(hardware + (f", power cap {', '.join(sorted(caps))}" if caps else ""))))
        found.append(("system", text(os_name + (f", driver {driver}" if (driver := inventory.driver()) else ""))))
    if r := ran.runtime:
        commit = f", commit {code(r.source_commit)}" if r.source_commit else ""
        words = f"{r.engine} {r.version}, backend {r.backend or 'unknown'}"
        found.append(("build", f"{text(words)}{commit} ({code(r.manifest_hash)})"))
    found.append(("target", _model(ran.target)))
    found += [("draft model", _model(draft)) for draft in ran.drafts]
    return [f"- {what}: {words}" for what, words in found]


def _model(model: ModelInfo | None) -> str:
    if model is None:
        return "unknown"
    size = f"{model.n_parameters / 1e9:.2g} B parameters" if model.n_parameters else ""
    facts = ", ".join(filter(None, (model.architecture, model.quantization, size)))
    return f"{text(model.alias)}{f' ({text(facts)})' if facts else ''} ({code(model.manifest_hash)})"


def _held_fixed(spec: ExperimentSpec) -> list[str]:
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
    return [f"- held fixed: {text(held)}", *(f"  - {text(point_words(p, attached=spec.runtime.attached))}" for p in spec.points)]


def point_words(p: Point, *, attached: bool = False) -> str:
    """What is asked at a point, and how its requests come and go. ``attached``: a trial is no start of the server."""
    filled = [f"{p.occupied_context:,} tokens of context occupied"] if p.occupied_context else []
    n = f"{p.n_requests} request{'' if p.n_requests == 1 else 's'} in each {'trial' if attached else 'start'}"
    return ", ".join([f"{p.workload}: temperature {p.sampling.temperature:g}", f"up to {p.max_tokens} tokens", n, *filled, *p.manner])


def _commands(ran: Ran) -> Part:
    """Each arm's command, the paths and the port as names."""
    if ran.spec.runtime.attached:
        return Part("commands", ["Commands: not known; the servers stood already, started by somebody else."])
    lines = []
    for arm, argv in ran.commands.items():
        lines += [f"# {arm}", " ".join(_word(w) for w in argv)]
    return Part("commands", [fenced("\n".join(lines), "sh")], rank=10, around=folded("Commands")) if lines else Part("commands", [])


def _word(word: str) -> str:
    """Quoted where a shell needs it; what stands for a binding is not."""
    return word if word.startswith("{") and word.endswith("}") and word[1:-1].isalpha() else shlex.quote(word)
