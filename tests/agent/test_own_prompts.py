"""A file of prompts on the real engine: chats behind their history, answers no longer than their line says, one by one and together."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from speccore.prompt_file import read_prompt_file
from speccore.workload import Workload

from tests.agent.conftest import Ran, make_spec
from tests.agent.test_worded import ENGINE, streams_of, texts_of


def line(n: int) -> dict[str, object]:
    history = [{"role": "system", "content": f"{n}, {n + 1}, "}, {"role": "user", "content": f"{n + 2}, "}]
    return {"messages": [*history, {"role": "user", "content": f"{n + 3}, "}], "id": f"from-{n}", "max_tokens": 8 + n % 3 if n % 2 else 64}


@pytest.fixture
def workload() -> Workload:
    data = "\n".join(json.dumps(line(10 * n + n % 2) | {"warmup": n > 40}) for n in range(1, 46)).encode()
    found = read_prompt_file(data, name="own").workload
    assert found is not None
    return found


def test_each_answer_ends_where_its_line_says_and_the_point_caps_the_rest(job: Callable[..., Ran]) -> None:
    points = [{"workload": "own", "max_tokens": 16, "probes": 4}, {"workload": "own", "max_tokens": 16, "probes": 4, "concurrency": 2}]
    ran = job(make_spec(engine=ENGINE | {"slots": 2}, points=points))
    finished = ran.run()
    assert finished.outcome == "completed", finished.error
    items = {i.id: i for w in ran.workloads.values() for i in (*w.items, *w.warmup)}
    for report, folder in ran.sink.done:
        assert report.error is None
        prompts, counted = texts_of(folder), set()
        for stream in streams_of(folder):
            item = items[stream.item]
            assert prompts[stream.probe] == "".join(text for _, text in item.messages)
            most = min(item.max_tokens or 16, 16)
            assert sum(e.tokens for e in stream.events) <= most
            counted.add((stream.point, most))
        assert {most for point, most in counted if "c2" in point} >= {8, 16}, counted
