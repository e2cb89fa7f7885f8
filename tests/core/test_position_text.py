"""Acceptance by position as pages and reports tell it: the draft's first position is the second token of a pass."""

from __future__ import annotations

from typing import Any

from speccore.measurement import ComparisonResult, JobAnalysis, Withheld
from speccore.position_text import MOST_TOLD, position_lines, positions, told


def comparison(mode: str = "mtp", **shares: Any) -> ComparisonResult:
    """Only the fields that are read here."""
    found: dict[str, Any] = {"accepted_by_position": [0.925, 0.74, 0.6], "conditional_by_position": [0.925, 0.8, 0.81]}
    return ComparisonResult.model_construct(arm=f"{mode}-3", mode=mode, point="count/c1", **(found | shares))


def lines(*found: ComparisonResult) -> list[str]:
    return position_lines(JobAnalysis.model_construct(comparisons=list(found))).splitlines()


def test_the_first_position_is_the_second_token() -> None:
    found = positions(comparison())
    assert not isinstance(found, Withheld)
    assert [(p.n, p.accepted, p.where_reached, p.is_second_token) for p in found] == [
        (1, "92", "92", True),
        (2, "74", "80", False),
        (3, "60", "81", False),
    ]
    assert lines(comparison()) == [
        "accepted by position in the draft:",
        "  count/c1, mtp-3: second token 92 %; up to each position 92 74 60 %, where reached 92 80 81 %",
    ]


def test_what_was_stored_before_the_second_share_was_counted_shows_the_first_alone() -> None:
    old = comparison(conditional_by_position=Withheld(withheld="counted later", reason_code="later"))
    assert lines(old)[1] == "  count/c1, mtp-3: second token 92 %; up to each position 92 74 60 %"


def test_withheld_shares_and_lookups_have_no_line() -> None:
    none = Withheld(withheld="no step was counted by position", reason_code="none")
    assert positions(comparison(accepted_by_position=none)) == none
    assert lines(comparison(accepted_by_position=none), comparison("ngram-simple"), comparison(accepted_by_position=[])) == []


def test_a_long_draft_is_told_by_its_beginning() -> None:
    assert told([str(n) for n in range(MOST_TOLD + 3)]) == "0 1 2 3 4 5 6 7 … and 3 more"
    assert told(["9"]) == "9"
