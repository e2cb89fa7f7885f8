"""Each preset's launch commands in each dialect, as a file that one can read; after a wanted change write it anew:

python -m tests.core.test_preset_commands
"""

from __future__ import annotations

from pathlib import Path

import pytest
from speccore.plan import plan_job
from speccore.presets import Preset, presets
from speccore.reference import reference_builds, reference_commands
from speccore.spec import ExperimentSpec, parse_spec
from speccore.workloads import builtin

from tests.core.recordings import LLAMA, read

PINNED = Path(__file__).with_name("preset-commands.txt")


def spec_of(preset: Preset) -> ExperimentSpec:
    spec, problems = parse_spec(preset.as_written())
    assert spec is not None, problems
    return spec


def commands_of(preset: Preset) -> str:
    spec = spec_of(preset)
    lines = [f"=== {preset.name}"]
    for build in reference_builds():
        found = reference_commands(spec, build)
        lines.append(f"--- {build.name}")
        for arm in spec.arms:
            told = " ".join(found.argv[arm.name]) if arm.name in found.argv else "refused: " + "; ".join(found.refusals[arm.name])
            lines.append(f"{arm.name}: {told}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", presets())
def test_commands_are_what_they_were(name: str) -> None:
    pinned = {text.split("\n", 1)[0].removeprefix("=== "): text for text in PINNED.read_text(encoding="utf-8").split("\n\n") if text}
    assert commands_of(presets()[name]).strip() == pinned[name].strip()


@pytest.mark.parametrize("name", presets())
def test_each_can_be_planned_and_started_by_todays_build(name: str) -> None:
    spec = spec_of(presets()[name])
    assert len(plan_job(spec, builtin()).trials) == spec.blocks * len(spec.arms)
    assert spec.question
    today = reference_commands(spec, reference_builds()[0])
    assert not today.refusals
    assert [c.arm for c in today.commands] == [a.name for a in spec.arms]


def test_todays_capabilities_are_those_of_the_recorded_help() -> None:
    today, older = reference_builds()
    assert today.capabilities == LLAMA.capabilities(read("b10434.help.txt"))
    assert (today.capabilities.dialect, older.capabilities.dialect) == ("spec-type", "draft-flag")
    by_hand = LLAMA.capabilities(read("handmade-draft-flag.help.txt"))
    speculation = {name: long for name, long in by_hand.flags.items() if LLAMA.is_speculation(long)}
    assert speculation.items() <= older.capabilities.flags.items()


def test_what_a_dialect_lacks_is_told_for_its_arm() -> None:
    spec = spec_of(presets()["qwen3.8-27b-mtp"])
    older = reference_commands(spec, reference_builds()[1])
    assert list(older.argv) == ["off"]
    assert list(older.refusals) == ["mtp-2", "mtp-5"]
    assert "needs --spec-type draft-mtp" in older.refusals["mtp-2"][0]


if __name__ == "__main__":
    PINNED.write_text("\n".join(commands_of(p) for p in presets().values()), encoding="utf-8")
