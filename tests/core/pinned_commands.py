"""Launch commands of presets as a file that one can read: what is written there, and what it is held against."""

from __future__ import annotations

from pathlib import Path

from speccore.presets import presets
from speccore.reference import reference_builds, reference_commands
from speccore.spec import ExperimentSpec, parse_spec


def spec_of(name: str, **instead: object) -> ExperimentSpec:
    """The preset's experiment with some of its keys replaced."""
    spec, problems = parse_spec({**presets()[name].as_written(), **instead})
    assert spec is not None, problems
    return spec


def commands_of(name: str, spec: ExperimentSpec) -> str:
    """Of each arm, by each reference build of the experiment's engine."""
    lines = [f"=== {name}"]
    for build in reference_builds(spec.runtime.engine):
        found = reference_commands(spec, build)
        lines.append(f"--- {build.name}")
        for arm in spec.arms:
            told = " ".join(found.argv[arm.name]) if arm.name in found.argv else "refused: " + "; ".join(found.refusals[arm.name])
            lines.append(f"{arm.name}: {told}")
    return "\n".join(lines) + "\n"


def pinned(path: Path) -> dict[str, str]:
    """By preset."""
    return {text.split("\n", 1)[0].removeprefix("=== "): text for text in path.read_text(encoding="utf-8").split("\n\n") if text}
