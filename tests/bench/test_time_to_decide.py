"""The bench of early looks: it counts trials and verdicts as it says, and it can fail."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from speccore.sequential import decide

from bench import time_to_decide as bench
from bench.coverage import VERDICT, WORDS, Scenario, simulate


def arm(used: list[int], fixed: list[int], word: list[int], beyond: list[float]) -> bench.Arms:
    return bench.Arms(np.array(fixed), np.array(word), np.array(used), np.array(beyond))


def test_the_baseline_runs_as_long_as_any_arm_does() -> None:
    row = bench.summed("", [arm([3, 10], [1, 0], [1, 1], [0.02, 0.5]), arm([5, 5], [2, 2], [2, 2], [0.0, 0.01])])
    assert row.share_of_trials == pytest.approx(((3 + 5 + 5) + (10 + 5 + 10)) / 60)
    assert row.same_verdict == pytest.approx(3 / 4)
    assert row.decided_early == pytest.approx(3 / 4)
    assert row.overstated_percent == pytest.approx(100 * math.expm1(0.01))
    assert bench.summed("", [arm([10], [1], [1], [0.3])]).overstated_percent is None


def test_watching_many_is_deciding_each() -> None:
    values, differences = simulate(Scenario("", 0.03), 10, 200, np.random.default_rng(4))
    truth = np.log(np.linspace(0.8, 1.5, 200))
    seen = bench.watch(values, differences, truth)
    for row, x, t, word, used, beyond in zip(values, differences, truth, seen.word, seen.used, seen.beyond):
        found = decide(list(row + t), [int(d) for d in x], bench.MARGIN, None, 10)
        assert VERDICT[WORDS.index(found.word or "")] == word
        assert used == (found.n_blocks if found.word else 10)
        assert beyond == pytest.approx((math.log(found.interval.estimate) - t) * (-1 if t < 0 else 1))  # type: ignore[union-attr]


def test_a_promise_that_is_not_kept_is_named() -> None:
    row = bench.Row("", same_verdict=0.94, share_of_trials=0.7, decided_early=0.5, overstated_percent=None, n_simulated=1)
    assert bench.broken(row) == "same verdict under 95%, trials over 0.6"
    assert bench.broken(bench.replace(row, same_verdict=0.96, share_of_trials=0.6)) == ""


def test_the_table_and_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "GRID", [(2.0, 0.02), (1 + bench.MARGIN, 0.05)])
    assert bench.main(["--n", "300", "--out", str(tmp_path / "f.json")]) == 0
    shown = capsys.readouterr().out
    assert "| ratio 2, noise 2.0% | 100.0% |" in shown
    data = json.loads((tmp_path / "f.json").read_text())
    assert [len(data[k]) for k in ("grid", "summaries", "real")] == [2, 4, 0]
    plain, at_the_margin = data["grid"]
    assert plain["share_of_trials"] <= 0.5 < at_the_margin["share_of_trials"]
    monkeypatch.setattr(bench, "MOST_TRIALS", 0.3)
    assert bench.main(["--n", "300"]) == 1
    assert "← trials over 0.3" in capsys.readouterr().out
