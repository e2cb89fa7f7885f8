"""What an experiment would need on a host, in words that name arm, need, room and the context that should fit."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.cautions import Place, cautions
from speccore.errors import SpecError
from speccore.inventory import Device, HostInventory, ModelInfo
from speccore.memory_needs import Need, needs

from tests.core.made import planned, spec_of, workload
from tests.core.test_memory_estimate import HELPER, TARGET

MIB = 2**20


def host(memory_mib: int, *, gpu: bool = False) -> HostInventory:
    kind = "gpu" if gpu else "cpu"
    return HostInventory(
        agent_version="1",
        hostname="box",
        os={},
        boot_id="b",
        cpu_model="c",
        n_cores=4,
        memory_bytes=memory_mib * MIB,
        devices=[Device(uuid="d", kind=kind, name="d", memory_bytes=memory_mib * MIB)],  # type: ignore[arg-type]
        runtimes=[],
        models=[],
    )


def told(memory_mib: int, *, target: ModelInfo = TARGET, gpu: bool = False, **more: Any) -> list[Need]:
    return needs(spec_of(**more), host(memory_mib, gpu=gpu), target, {"draft-4": HELPER})


def test_each_arm_says_what_it_needs_and_what_context_should_fit() -> None:
    off, draft = told(400, engine={"context": 60_000})
    assert off.words() == ("needs about 304 MiB of 400 MiB of memory; all 65,536 tokens that the model was trained for should fit")
    assert draft.words() == "needs about 394 MiB of 400 MiB of memory; a context of up to 60,928 tokens should fit"
    assert (off.fits, draft.fits) == (True, True)


def test_what_must_stay_free_counts() -> None:
    off, draft = told(400, engine={"context": 60_000}, requirements={"free_memory_mib": 50})
    assert (off.fits, draft.fits) == (True, False)
    assert "of which 50 MiB must stay free" in draft.words()
    assert draft.largest is not None
    assert draft.largest < 60_000


def test_of_a_gpu_only_what_lies_there_counts() -> None:
    (off, _), (there, _) = told(400), told(400, gpu=True)
    assert off.needs_bytes is not None
    assert there.needs_bytes is not None
    assert off.needs_bytes == there.needs_bytes  # the embedding stays in the host's memory, and a copy is the output
    assert "of GPU memory" in there.words()


def test_no_estimate_says_why() -> None:
    (off, draft) = told(400, target=TARGET.model_copy(update={"memory": None}))
    assert (off.fits, off.largest) == (None, None)
    assert off.words() == draft.words() == "no estimate of its memory: the host has not told what target is made of"


class TestCautions:
    def said(self, memory_mib: int, target: ModelInfo = TARGET) -> dict[str, str]:
        spec = spec_of(engine={"context": 60_000})
        place = Place("box", host(memory_mib), target, {"draft-4": HELPER})
        found = cautions(spec, {"count": workload()}, [place])
        return {c.field: c.message for c in found if "box" in c.message and "MiB" in c.message}

    def test_nothing_where_all_fit(self) -> None:
        assert self.said(401) == {}

    def test_the_arm_alone_is_named_where_only_its_helper_is_too_much(self) -> None:
        assert list(self.said(350)) == ["arms.1.draft_model"]
        assert self.said(350)["arms.1.draft_model"].startswith("draft-4 needs about 394 MiB of 350 MiB of memory; a context of up to 5")

    def test_a_baseline_that_is_too_much_is_told_once(self) -> None:
        assert list(self.said(300)) == ["engine.context"]

    def test_weights_that_are_too_much_leave_no_context(self) -> None:
        assert self.said(2)["engine.context"].endswith("no context should fit (on box)")


def test_looking_for_the_largest_context_costs_starts_that_are_announced() -> None:
    found = {c.field: c.message for c in cautions(spec_of(fit=True), {"count": workload()}, [])}
    assert found["fit"] == "after the blocks up to 8 more starts for each of 2 arms, of which the minutes say nothing"
    assert "fit" not in {c.field for c in cautions(spec_of(), {"count": workload()}, [])}


def test_it_needs_a_last_start_that_is_known_beforehand() -> None:
    planned(spec_of(fit=True))
    with pytest.raises(SpecError, match="fit beside sequential is not offered") as refused:
        planned(spec_of(fit=True, sequential=True, blocks=5))
    assert refused.value.details["field"] == "fit"


def test_what_even_the_baseline_could_not_hold_is_told_before_it_runs() -> None:
    def told(**requirements: int) -> dict[str, str]:
        spec = spec_of(engine={"context": 1024, "slots": 2}, requirements=requirements)
        return {c.field: c.message for c in cautions(spec, {"count": workload()}, []) if c.field.startswith("requirements")}

    assert told(context=4096, slots=8) == {
        "requirements.context": "engine.context is 1,024, so that no arm can offer the 4,096 that are asked for, and none can be kept",
        "requirements.slots": "engine.slots is 2, so that no arm can offer the 8 that are asked for, and none can be kept",
    }
    assert told(context=1024, slots=2) == {}
