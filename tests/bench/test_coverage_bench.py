"""The bench of coverage: it judges by the functions that jobs call, its scenarios are what they say, and it can fail."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from speccore import stats
from speccore.sequential import decide

from bench import adding, coverage
from bench.coverage import Row, Scenario, simulate

NOISY = Scenario("noisy", 0.03, 0.04, arms=3)


def test_early_looks_at_many_are_those_of_one() -> None:
    values, differences = simulate(NOISY, 10, 300, np.random.default_rng(1))
    truth = math.log(1.05)
    word, used, middles = coverage.decisions(values, differences, coverage.MARGIN, truth)
    for row, x, w, n, middle in zip(values + truth, differences, word, used, middles):
        found = decide(list(row), [int(d) for d in x], coverage.MARGIN, None, 10)
        assert (found.word or "") == coverage.WORDS[w]
        assert n == (blocks_at_the_end(found) if found.word else 10)
        assert math.log(found.interval.estimate) == pytest.approx(middle)  # type: ignore[union-attr]
    assert len(set(word)) > 2


def blocks_at_the_end(found: object) -> int:
    return found.interval.n_blocks  # type: ignore[attr-defined, no-any-return]


def test_what_is_false() -> None:
    words = np.arange(4)
    assert list(coverage.is_false(words, 1.0)) == [False, True, True, False]
    assert list(coverage.is_false(words, 1.03)) == [False, True, True, True]
    assert list(coverage.is_false(words, 2.0)) == [False, False, True, True]
    assert list(coverage.is_false(words, 0.8)) == [False, True, False, False]


def test_scenarios_are_what_they_say() -> None:
    rng = np.random.default_rng(3)
    quiet, x = simulate(Scenario("", 1e-9, drift=0.06), 10, 50, rng)
    assert quiet == pytest.approx(-x * math.log(1.06) / 2, abs=1e-6)
    assert np.abs(x.mean(axis=1)).max() == 0  # two arms, balanced over ten blocks
    plain, _ = simulate(Scenario("", 0.05), 10, 20_000, rng)
    assert plain.std() == pytest.approx(0.05 * math.sqrt(2 * (1 + 0.25 / 3)), rel=0.01)
    outliers, _ = simulate(Scenario("", 1e-9, outliers=True), 10, 20_000, rng)
    assert np.mean(np.abs(outliers) > 0.1) == pytest.approx(2 * 0.05 * 0.95 + 0.05**2, abs=0.005)
    unequal, _ = simulate(Scenario("", 1e-9, unequal=True), 10, 20_000, rng)
    assert unequal.mean() == pytest.approx(0, abs=0.001)
    assert unequal.std() > 0.03
    asked = list(coverage.scenarios())
    assert {s.noise for s in asked} >= {0.005, 0.15}
    assert {s.drift for s in asked} >= {0.0, 0.06}
    assert any(s.outliers for s in asked)
    assert any(s.unequal for s in asked)
    assert len({s.name for s in asked}) == len(asked)


@pytest.mark.parametrize(
    ("scenario", "coverage_seen", "false_seen", "words"),
    [
        (Scenario("", 0.02), 0.95, 0.04, ""),
        (Scenario("", 0.02), 0.939, 0.04, "coverage under 94%"),
        (Scenario("", 0.02), 0.97, 0.04, "coverage over 96.5%"),
        (Scenario("", 0.02, outliers=True), 0.97, 0.04, ""),
        (Scenario("", 0.02), 0.95, 0.051, "false decisions over 5%"),
    ],
)
def test_a_broken_promise_is_named(scenario: Scenario, coverage_seen: float, false_seen: float, words: str) -> None:
    assert coverage.broken(scenario, Row("", 5, coverage_seen, false_seen, 1000)) == words


def test_intervals_that_are_too_narrow_fail_the_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coverage, "scenarios", lambda: iter([Scenario("quiet", 0.02), Scenario("noisy", 0.15, outliers=True)]))
    monkeypatch.setattr(adding, "rows", lambda n, rng: [adding.adding(0.02, 3, min(n, 4000), rng)])
    monkeypatch.setattr(adding, "MOST", 10)
    out = tmp_path / "rows.json"
    assert coverage.main(["--n", "20000", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(r["scenario"], r["n_blocks"]) for r in rows] == [(s, n) for s in ("quiet", "noisy") for n in (5, 7, 10)]
    assert set(rows[0]) == {"scenario", "n_blocks", "coverage", "false_decisions", "n_simulated"}
    assert rows[0]["n_simulated"] == 20_000
    (added,) = json.loads(out.read_text())["adding"]
    assert 0.05 < added["misses"] < 0.08 < added["naive"]
    assert added["wrong_keeps"] < added["wrong_at_any_word"]
    monkeypatch.setattr(stats, "t_quantile", lambda df, confidence=0.95: 1.96)
    assert coverage.main(["--n", "2000"]) == 1
    assert "← coverage under 94%" in capsys.readouterr().out


def test_additions_that_spend_nothing_of_their_own_fail_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "MOST", 12)
    held = adding.adding(0.05, 5, 4000, np.random.default_rng(2))
    assert adding.broken(held) == ""
    monkeypatch.setattr(adding, "joined_confidence", lambda first, n_first, n_blocks: 0.95)
    plain = adding.adding(0.05, 5, 4000, np.random.default_rng(2))
    assert adding.broken(plain) == "wrong in over 8%"
    assert "← wrong in over 8%" in adding.line(plain)
