"""The same experiment sent by several threads at once under one key: stored once, and one answer alone says that it was made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import connections

from specweb.experiments.models import Experiment
from tests.web.people_api import Program
from tests.worlds import make_world, spec

N_THREADS, N_ROUNDS = 4, 6


@pytest.mark.django_db(transaction=True)
def test_in_a_race_one_alone_is_told_that_it_made_it() -> None:
    world = make_world()
    world.agent.poll()
    world.agent.send_inventory()
    asked = spec().model_dump(mode="json")
    token = Program(world.owner).token
    gate = threading.Barrier(N_THREADS)

    def send(key: str) -> tuple[int, str]:
        gate.wait(20)
        answer = Program(token=token).post("experiments/", asked, headers={"Idempotency-Key": key})
        return answer.status_code, answer.json().get("id", answer.content)

    with ThreadPoolExecutor(N_THREADS) as pool:
        for n in range(1, N_ROUNDS + 1):
            key = str(uuid4())
            answers = list(pool.map(send, [key] * N_THREADS))
            assert sorted(status for status, _ in answers) == [200] * (N_THREADS - 1) + [201], answers
            assert len({made for _, made in answers}) == 1
            assert Experiment.objects.count() == n
        list(pool.map(lambda _: (gate.wait(20), connections.close_all()), range(N_THREADS)))
