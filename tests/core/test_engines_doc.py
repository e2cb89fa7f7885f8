"""docs/engines.md against the code: every name of an engine's interface, every mode with what it is called on each engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from speccore.engines import llamacpp, vllm
from speccore.engines.vllm_config import EXTRA_KEYS
from speccore.modes import MODES, STATEFUL_MODES

TEXT = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
ROWS = {cells[1]: cells for line in TEXT.splitlines() if len(cells := [c.strip() for c in line.split("|")]) == 6}


def test_every_name_of_the_interface_is_there() -> None:
    assert {name for name in llamacpp.__all__ if f"`{name}`" not in TEXT} == set()


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_with_its_names(mode: str) -> None:
    _, _, drafts, llama, other, _ = ROWS[mode]
    assert (llama, other) == (llamacpp.SPEC_TYPES.get(mode, "–"), vllm.SPEC_TYPES.get(mode, "–"))
    assert ("keeps state" in drafts) == (mode in STATEFUL_MODES)


@pytest.mark.parametrize("mode", EXTRA_KEYS)
def test_each_key_of_vllms_speculative_config_that_an_arm_may_have(mode: str) -> None:
    assert {key for key in EXTRA_KEYS[mode] if f"`{key}`" not in TEXT} == set()
