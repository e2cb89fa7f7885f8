"""The bench of the baseline against itself: it judges as an arm would be judged, counts what is invalid, and can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from speccore.measurement import ComparisonResult, Interval, Verdict, Withheld

from bench import aa
from bench.aa import Told

WORTHLESS = Told("not worth it", "not worth it", 1.0, 0.99, 1.01)


def compared(low: float, high: float, **more: Any) -> ComparisonResult:
    speedup = Interval(estimate=(low * high) ** 0.5, low=low, high=high, n_blocks=5)
    values = {"speedup": speedup, "noise_floor": None, "verdict": Verdict(word="inconclusive", reason="floor-limited")}
    return ComparisonResult.model_construct(**(values | more))


@pytest.mark.parametrize(
    ("low", "high", "word", "holds"),
    [
        (1.031, 1.1, "keep", False),
        (0.9, 0.99, "slower", False),
        (0.99, 1.02, "not worth it", True),
        (1.005, 1.02, "not worth it", False),
        (0.95, 1.05, "inconclusive", True),
    ],
)
def test_a_control_is_judged_as_an_arm_would_be(low: float, high: float, word: str, holds: bool) -> None:
    found = aa.told(compared(low, high), 0.03)
    assert (found.word, found.holds_one) == (word, holds)


def test_what_is_invalid_is_counted_and_never_judged() -> None:
    lag = aa.told(compared(1.1, 1.2, verdict=Verdict(word="invalid", reason="client lag")), 0.03)
    nothing = aa.told(compared(1, 1, speedup=Withheld(withheld="needs 3 blocks, has 0"), verdict=Verdict(word="inconclusive")), 0.03)
    assert (lag.word, lag.reason, nothing.word) == ("invalid", "client lag", "invalid")
    row = aa.row("bursty", [lag, nothing, *[WORTHLESS] * 17], 60)
    assert (row.n_invalid, row.n_valid, row.keep, row.holds_one) == (2, 17, 0, 17)
    assert row.invalid_reasons == {"client lag": 1, "inconclusive": 1}
    assert aa.broken(row) == ""
    assert aa.table_line(row) == "| bursty | 19 | 2 | 0 | 0 | 17 | 0 | 17 of 17 | ±1.0 % |"


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([], ""),
        ([Told("keep", "", 1.1, 1.05, 1.2)], "1 kept"),
        ([Told("slower", "", 0.9, 0.85, 0.95)], ""),
        ([Told("slower", "", 0.9, 0.85, 0.95)] * 2, "2 called slower"),
        ([Told("not worth it", "", 1.01, 1.005, 1.02)] * 3, ""),
        ([Told("not worth it", "", 1.01, 1.005, 1.02)] * 4, "only 16 of 20 intervals hold 1, 17 must"),
    ],
)
def test_a_broken_promise_is_named(others: list[Told], why: str) -> None:
    assert aa.broken(aa.row("quiet", [*others, *[WORTHLESS] * (20 - len(others))], 60)) == why


def test_nothing_valid_shows_nothing() -> None:
    assert aa.broken(aa.row("quiet", [Told("invalid", "client lag")], 60)) == "no valid experiment"


def test_the_neighbour_burns_and_is_gone_afterwards() -> None:
    me = psutil.Process()
    before = set(me.children())
    with aa.neighbour("quiet"):
        assert set(me.children()) == before
    with aa.neighbour("bursty"):
        (child,) = set(me.children()) - before
        assert child.is_running()
    assert not child.is_running()


def test_one_experiment_on_the_real_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "aa.json"
    aa.main(["--n", "1", "--condition", "quiet", "--bare", "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["condition"], row["n_experiments"]) == ("quiet", 1)
    words = sum(row[name] for name in ("n_invalid", "keep", "slower", "not_worth_it", "inconclusive"))
    assert words == 1
    assert "| quiet | 1 |" in capsys.readouterr().out
