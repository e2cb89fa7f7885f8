"""An engine of known speed, through agent and analysis: what comes out is what was put in."""

from __future__ import annotations

from pathlib import Path

import pytest
from specagent import local
from specagent.inventory import Host
from speccore.measurement import Interval, value_of
from speccore.workload import Item, Workload

from tests.agent.conftest import Ran, make_spec
from tests.agent.replayed import Replay, panel
from tests.replay.engine import Side, trial_noise

TRUTHS = {1: 1.0, 2: 1.1, 3: 2.0}  # by draft limit


def test_scripted_ratios_are_recovered_within_their_intervals(host: Host, workload: Workload, tmp_path: Path) -> None:
    """Five blocks of starts whose pace is ±3 % off: far more than the machine that replays them adds. With this seed the noise
    averages out, so that only what agent, client and analysis add could push a truth out of its interval."""
    arms = [{"name": f"draft-{n}", "mode": "draft", "draft_model": "draft", "draft_limit": n} for n in TRUTHS]
    replay = Replay(
        host,
        workload,
        tmp_path / "run",
        spec={"arms": [{"name": "off", "mode": "off"}, *arms], "blocks": 5},
        sides={str(n): Side(speed=truth, accepted=n) for n, truth in TRUTHS.items()},
        token_ms=8.0,
        noise=trial_noise(20, 0.03),
    )
    assert replay.finished.outcome == "completed"
    analysis = replay.analysis()
    for n, truth in TRUTHS.items():
        c, _ = panel(analysis, f"draft-{n}")
        assert isinstance(c.speedup, Interval)
        assert c.speedup.low is not None
        assert c.speedup.high is not None
        assert c.speedup.low <= truth <= c.speedup.high, c.speedup
        assert truth < 2 or c.speedup.low > 1  # narrow enough to tell twice as fast from no faster
        # what the script accepts of each draft is counted to the token
        assert value_of(c.acceptance_rate) == pytest.approx(1.0)


def test_a_draft_that_is_the_target_is_accepted(host: Host, tmp_path: Path) -> None:
    """On the real engine. The last cycle of an answer drafts no further than its end."""
    items = [Item(id=f"n{a}", prompt=f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n") for a in range(10, 20)]
    counting = Workload(name="numbers", version=1, title="Numbers", items=items[1:], warmup=items[:1])
    itself = {"name": "itself", "mode": "draft", "draft_model": "target", "draft_limit": 4}
    spec = make_spec(
        arms=[{"name": "off", "mode": "off"}, itself], points=[{"workload": "numbers", "max_tokens": 96, "probes": 3}], blocks=3
    )
    ran = Ran(host, spec, counting, tmp_path / "out")
    assert ran.run().outcome == "completed"
    c, _ = panel(local.analyse(ran.offer, ran.workloads, ran.sink), "itself")
    drafted = value_of(c.drafted_per_cycle)
    assert drafted is not None
    assert drafted > 3
    acceptance = value_of(c.acceptance_rate)
    assert acceptance is not None
    assert acceptance >= 0.99
