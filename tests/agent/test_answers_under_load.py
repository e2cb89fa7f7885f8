"""Whether the real engine's greedy answers stay its own with two requests at once: told by the integrity panel alone.

Builds of llama-server are known that mix up the recurrent states of what they serve together; which one is installed decides what
the panel must say here. An engine that is made to answer wrongly stands in test_confounds.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from specagent import local
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from speccore.agreement import NEAR_TIE_NAT
from speccore.records import SECOND_LOOK, TEXTS, SecondLook, TextRecord
from speccore.untimed import LOOKS_TOGETHER
from speccore.workload import Workload

from tests.agent.conftest import Ran, make_spec


@pytest.fixture
def many() -> Workload:
    items = [{"id": f"n{a}", "prompt": f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n"} for a in range(10, 60)]
    return Workload.model_validate({"name": "numbers", "version": 1, "title": "Numbers", "items": items[8:], "warmup": items[:8]})


def ran_at_two(model: Path, arm: dict, work: Workload, folder: Path, llama_server: Path) -> Ran:
    config = Config(
        state_dir=folder / "state", runtimes=[RuntimeEntry(path=llama_server)], models=[ModelEntry(alias="target", path=model)], threads=1
    )
    spec = make_spec(
        arms=[{"name": "off", "mode": "off"}, arm],
        engine={"context": 512, "slots": 2, "start_timeout_s": 30, "probe_timeout_s": 20},
        points=[{"workload": "numbers", "max_tokens": 16, "probes": 1, "concurrency": 2}],
    )
    ran = Ran(take_inventory(config, FileCache(folder / "files.json")), spec, work, folder / "out")
    assert ran.run().outcome == "completed"
    return ran


def wrong_answers(ran: Ran) -> list[str]:
    """From the evidence, without the code that judges: prompts whose answer leaves the second look where that was sure."""
    found = []
    folder = next(folder for report, folder in ran.sink.done if report.trial == "b1-off")
    texts = [TextRecord.model_validate_json(line) for line in (folder / TEXTS).read_text().splitlines()]
    answers = {t.probe: [i for ids in t.ids for i in ids] for t in texts}
    looks = [SecondLook.model_validate_json(line) for line in (folder / SECOND_LOOK).read_text().splitlines()]
    assert len(looks) == LOOKS_TOGETHER
    for look in looks:
        apart = next((n for n, both in enumerate(zip(answers[look.probe], look.ids)) if both[0] != both[1]), None)
        if apart is not None and look.gaps_nat[apart] > NEAR_TIE_NAT:
            found.append(look.item)
    return found


@pytest.mark.parametrize(
    ("model", "arm"),
    [
        ("target", {"name": "ngram", "mode": "ngram-simple", "ngram_size": 4, "draft_limit": 4}),
        ("mtp", {"name": "mtp-2", "mode": "mtp", "draft_limit": 2}),
    ],
)
def test_the_panel_says_of_two_at_once_what_the_evidence_shows(
    model: str, arm: dict, many: Workload, demo_models: Path, llama_server: Path, tmp_path: Path
) -> None:
    ran = ran_at_two(demo_models / f"{model}.gguf", arm, many, tmp_path, llama_server)
    wrong = wrong_answers(ran)
    compared = local.analyse(ran.offer, ran.workloads, ran.sink).comparisons[0]
    checks = {check.name: check for check in compared.checks}
    own = checks["baseline agrees with itself"]
    assert own.kind == "hard"
    if wrong:
        assert model == "mtp", "nothing is known against the llama architecture"
        assert (own.state, compared.verdict.word) == ("failed", "invalid")
        assert own.evidence["wrong"] == sorted(wrong)
    else:
        assert own.state == "passed", own.sentence
        assert own.evidence["prompts"] == LOOKS_TOGETHER
        assert compared.verdict.reason != own.name
