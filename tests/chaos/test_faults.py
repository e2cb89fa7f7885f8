"""The draw of faults: by seed alone, of every kind, and never so many that a trial is rightly given up."""

from collections import Counter

from tests.chaos.faults import MAX_FAULTS, MAX_SPOILED, SPOILS_ATTEMPT, WEIGHTS, draw

RUNS = [draw(seed, run) for seed in range(10) for run in range(50)]


def test_the_same_seed_draws_the_same_faults() -> None:
    assert [draw(7, run) for run in range(20)] == [draw(7, run) for run in range(20)]
    assert [draw(7, run) for run in range(20)] != [draw(8, run) for run in range(20)]


def test_every_kind_comes_and_each_run_has_some() -> None:
    seen = Counter((f.part, f.manner) for faults in RUNS for f in faults)
    assert {part for part, _ in seen} == set(WEIGHTS)
    assert {("agent", "kill"), ("agent", "freeze"), ("web", "term"), ("postgres", "kill"), ("valkey", "kill")} <= set(seen)
    assert all(1 <= len(faults) <= MAX_FAULTS for faults in RUNS)


def test_faults_come_in_order_and_spoil_one_attempt_at_most() -> None:
    for faults in RUNS:
        assert faults == sorted(faults, key=lambda f: (f.after_attempts, f.delay_s))
        assert sum(f.part in SPOILS_ATTEMPT for f in faults) <= MAX_SPOILED
