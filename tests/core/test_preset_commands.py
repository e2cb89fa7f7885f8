"""Each preset's launch commands in each dialect, as a file that one can read; after a wanted change write it anew:

python -m tests.core.test_preset_commands
"""

from __future__ import annotations

from pathlib import Path

import pytest
from speccore.plan import plan_job
from speccore.presets import presets
from speccore.reference import reference_builds, reference_commands
from speccore.workloads import builtin

from tests.core import test_vllm_commands
from tests.core.pinned_commands import commands_of, pinned, spec_of
from tests.core.recordings import LLAMA, read

PINNED = Path(__file__).with_name("preset-commands.txt")


@pytest.mark.parametrize("name", presets())
def test_commands_are_what_they_were(name: str) -> None:
    assert commands_of(name, spec_of(name)).strip() == pinned(PINNED)[name].strip()


@pytest.mark.parametrize("name", presets())
def test_each_can_be_planned_and_started_by_todays_build(name: str) -> None:
    spec = spec_of(name)
    assert len(plan_job(spec, builtin()).trials) == spec.blocks * len(spec.arms)
    assert spec.question
    today = reference_commands(spec, reference_builds(spec.runtime.engine)[0])
    assert not today.refusals
    assert [c.arm for c in today.commands] == [a.name for a in spec.arms]


def test_todays_capabilities_are_those_of_the_recorded_help() -> None:
    today, between, older = reference_builds("llama-server")
    assert today.capabilities == LLAMA.capabilities(read("b10434.help.txt"))
    assert between.capabilities == LLAMA.capabilities(read("rebuilt-2026-03.help.txt"))
    assert older.capabilities == LLAMA.capabilities(read("rebuilt-2025-02.help.txt"))
    assert [b.capabilities.dialect for b in (today, between, older)] == ["spec-type", "draft-flag", "draft-flag"]


def test_what_a_dialect_lacks_is_told_for_its_arm() -> None:
    spec = spec_of("qwen3.8-27b-mtp")
    for build in reference_builds("llama-server")[1:]:
        told = reference_commands(spec, build)
        assert list(told.argv) == ["off"]
        assert list(told.refusals) == ["mtp-2", "mtp-5"]
        assert "needs --spec-type draft-mtp" in told.refusals["mtp-2"][0]


if __name__ == "__main__":
    test_vllm_commands.write()
    PINNED.write_text("\n".join(commands_of(name, spec_of(name)) for name in presets()), encoding="utf-8")
