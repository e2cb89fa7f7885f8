"""Greedy answers of a real run, read from its evidence and laid beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specagent.local import read_json
from speccore import records
from speccore.agreement import Output, agreement, arm_pairs, read_output
from speccore.records import StreamRecord, TextRecord


def outputs(folder: Path, block: int) -> list[Output]:
    lines = [(folder / name).read_text().splitlines() for name in (records.RECORDS, records.TEXTS)]
    kept = [(StreamRecord.model_validate_json(r), TextRecord.model_validate_json(t)) for r, t in zip(*lines)]
    found = [read_output(record, text, block) for record, text in kept if not record.warmup]
    assert not [why for why in found if isinstance(why, str)]
    return [o for o in found if isinstance(o, Output)]


def test_speculation_on_the_demo_pair_answers_as_the_baseline_does(job: Callable, spec_with: Callable) -> None:
    ran = job(spec_with(blocks=2))
    assert ran.run().outcome == "completed"
    by_arm: dict[str, list[Output]] = {"off": [], "draft-3": []}
    for report, folder in ran.sink.done:
        block, arm = report.trial.removeprefix("b").split("-", 1)
        by_arm[arm] += outputs(folder, int(block))
        assert read_json(folder / records.ATTEMPT)["arm"] == arm
    pairs = arm_pairs(by_arm["off"], by_arm["draft-3"])
    assert len(pairs) == 4
    assert all(len(o.ids) == 16 and o.cut for pair in pairs for o in pair)
    found = agreement(pairs)
    assert found.n == 4
    assert found.n_identical >= 3, found.words()  # equal but for near-ties
