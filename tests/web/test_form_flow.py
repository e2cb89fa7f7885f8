"""A mapping in one line of the form: what is no mapping is told with what to write instead."""

from __future__ import annotations

import pytest

from specweb.dashboard.form_flow import map_fault, map_value


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("--spec-draft-poll 50", "write --spec-draft-poll: 50,"),
        ("draft_sample_method  greedy", "write draft_sample_method: greedy,"),
        ("--spec-draft-poll: 50, --spec-draft-prio 2", "write --spec-draft-prio: 2,"),
    ],
)
def test_a_flag_as_a_shell_takes_it_is_told_with_its_colon(text: str, write: str) -> None:
    assert write in map_fault(text)


@pytest.mark.parametrize(
    "text", ["--spec-draft-poll: 50", "--no-spec-draft-backend-sampling", "a: b c", "quantization: fp8, enforce_eager"]
)
def test_what_is_a_mapping_has_no_fault(text: str) -> None:
    assert map_fault(text) == ""
    assert isinstance(map_value(text), dict)
