"""Memory told from a model's file alone, beside what llama-server was seen to reserve (b10434, on a CPU)."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.inventory import BlockShape, HostInventory, MemoryShape, ModelInfo
from speccore.measurement import Withheld
from speccore.memory_estimate import Estimate, Room, estimate_arm, largest_context
from speccore.spec import Arm, EngineSettings

MIB = 2**20
OFF = Arm(name="off", mode="off")
DRAFT = Arm(name="draft", mode="draft", draft_model="draft", draft_limit=4)
MTP = Arm(name="mtp", mode="mtp", draft_limit=5)


def model(alias: str, blocks: list[BlockShape], **shape: Any) -> ModelInfo:
    memory = MemoryShape(blocks=blocks, **shape)
    return ModelInfo(
        alias=alias, manifest_hash=alias, path=f"/{alias}", size_bytes=1, vocab_size=2048, context_length=65_536, memory=memory
    )


TARGET = model(
    "target",
    [BlockShape(weights=855_040, k=256, v=256)] * 4,
    embedding_bytes=557_056,
    other_bytes=1024,
    tied=True,
    width=256,
    feed_forward=704,
    heads=4,
)
HELPER = model(
    "draft",
    [BlockShape(weights=214_272, k=128, v=128)],
    embedding_bytes=278_528,
    other_bytes=512,
    tied=True,
    width=128,
    feed_forward=352,
    heads=4,
)
WITH_HEAD = model(
    "head",
    [
        BlockShape(weights=939_424, state=74_752),
        *[BlockShape(weights=855_552, k=128, v=128)] * 3,
        BlockShape(weights=997_888, k=128, v=128),
    ],
    n_next=1,
    embedding_bytes=557_056,
    other_bytes=1024,
    tied=True,
    width=256,
    feed_forward=704,
    heads=4,
)


def engine(**settings: Any) -> EngineSettings:
    return EngineSettings(**settings)


def told(arm: Arm, target: ModelInfo = TARGET, draft: ModelInfo | None = None, *, on_device: bool = False, **settings: Any) -> Estimate:
    found = estimate_arm(engine(**settings), arm, target, draft, on_device=on_device)
    assert isinstance(found, Estimate), found
    return found


#: Settings: KV and compute with output buffers of the target, MiB, as b10434 logs them for a model of this shape.
SEEN: list[tuple[dict[str, Any], float, float]] = [
    ({"context": 512}, 2.00, 6.65),
    ({"context": 2048}, 8.00, 8.15),
    ({"context": 65_536}, 256.00, 70.15),
    ({"context": 2048, "ubatch": 128}, 8.00, 2.04),
    ({"context": 512, "slots": 4}, 8.00, 6.67),
    ({"context": 2048, "kv_type_k": "q8_0", "kv_type_v": "q8_0"}, 4.25, 7.68),
    ({"context": 2048, "flash_attention": "off"}, 8.00, 23.52),
    ({"context": 65_536, "flash_attention": "off"}, 256.00, 643.52),
]


@pytest.mark.parametrize(("settings", "cache", "buffers"), SEEN, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_cache_is_exact_and_buffers_near(settings: dict[str, Any], cache: float, buffers: float) -> None:
    found = told(OFF, **settings)
    assert found.bytes_of("target", "weights") / MIB == pytest.approx(3.79, abs=0.01)
    assert found.bytes_of("target", "cache") / MIB == pytest.approx(cache, abs=0.005)
    assert found.bytes_of("target", "buffers") / MIB == pytest.approx(buffers, rel=0.05)
    assert found.bytes_of("draft") == found.device == 0
    assert found.total == found.host


def test_a_draft_model_takes_the_same_context_again() -> None:
    found = told(DRAFT, draft=HELPER, context=65_536)
    assert found.bytes_of("target") == told(OFF, context=65_536).total
    assert found.bytes_of("draft", "weights") / MIB == pytest.approx(0.47, abs=0.01)
    assert found.bytes_of("draft", "cache") / MIB == pytest.approx(32.0, abs=0.01)
    assert found.bytes_of("draft", "buffers") / MIB == pytest.approx(65.52, rel=0.01)
    smaller = told(DRAFT.model_copy(update={"draft_kv_type_k": "q8_0", "draft_kv_type_v": "q8_0"}), draft=HELPER, context=65_536)
    assert smaller.bytes_of("draft", "cache") / MIB == pytest.approx(17.0, abs=0.01)


def test_a_head_is_loaded_for_mtp_only_and_keeps_states_to_go_back_to() -> None:
    off, mtp = told(OFF, WITH_HEAD, context=1024), told(MTP, WITH_HEAD, context=1024)
    assert off.bytes_of("target", "weights") / MIB == pytest.approx(3.88, abs=0.01)
    assert mtp.bytes_of("target", "weights") / MIB == pytest.approx(4.83, abs=0.01)
    assert off.bytes_of("target", "cache") / MIB == pytest.approx(1.50 + 0.07, abs=0.01)
    assert mtp.bytes_of("target", "cache") / MIB == pytest.approx(1.50 + 0.43, abs=0.01)
    assert mtp.bytes_of("draft", "cache") / MIB == pytest.approx(0.50, abs=0.01)
    assert mtp.bytes_of("draft", "weights") == off.bytes_of("draft") == 0


#: Context, width of the feed-forward, compute with output buffers of the head's own context, MiB, as b10434 logs them.
HEADS_SEEN = [(512, 704, 5.15), (2048, 704, 5.28), (8192, 704, 11.03), (65_536, 704, 67.03), (2048, 5632, 35.53), (65_536, 5632, 67.03)]


@pytest.mark.parametrize(("context", "feed_forward", "buffers"), HEADS_SEEN)
def test_the_buffers_of_a_head_are_near_what_was_seen(context: int, feed_forward: int, buffers: float) -> None:
    """It computes no scores but of the last token, and has one layer, behind whose attention the mask's room is free."""
    memory = WITH_HEAD.memory
    assert memory is not None
    model = WITH_HEAD.model_copy(update={"memory": memory.model_copy(update={"feed_forward": feed_forward})})
    assert told(MTP, model, context=context).bytes_of("draft", "buffers") / MIB == pytest.approx(buffers, rel=0.02)


@pytest.mark.parametrize(("context", "buffers"), [(512, 35.52), (2048, 37.02), (65_536, 99.02)])
def test_a_wide_feed_forward_decides_where_it_is_wider_than_the_scores(context: int, buffers: float) -> None:
    memory = TARGET.memory
    assert memory is not None
    wide = TARGET.model_copy(update={"memory": memory.model_copy(update={"feed_forward": 5632})})
    assert told(OFF, wide, context=context).bytes_of("target", "buffers") / MIB == pytest.approx(buffers, rel=0.02)


def test_on_a_device_the_embedding_stays_and_layers_follow_their_number() -> None:
    all_there = told(OFF, context=2048, on_device=True)
    assert all_there.host == TARGET.memory.embedding_bytes  # type: ignore[union-attr]
    assert all_there.bytes_of(what="cache", on_device=True) / MIB == pytest.approx(8.0, abs=0.01)
    half = told(OFF, context=2048, on_device=True, gpu_layers=3)  # the output and the last two blocks
    assert half.bytes_of(what="cache", on_device=True) / MIB == pytest.approx(4.0, abs=0.01)
    none = told(OFF, context=2048, on_device=True, gpu_layers=0)
    assert none.device == 0
    draft_in_host = told(DRAFT.model_copy(update={"draft_device": "none"}), draft=HELPER, on_device=True, context=2048)
    assert draft_in_host.bytes_of("draft", on_device=True) == 0
    assert draft_in_host.bytes_of("target", on_device=True) == all_there.device


def test_tables_by_layer_stay_in_the_host_and_are_never_copied() -> None:
    memory = TARGET.memory
    assert memory is not None
    by_layer = TARGET.model_copy(update={"memory": memory.model_copy(update={"host_bytes": 10 * MIB})})
    plain, found = told(OFF, on_device=True), told(OFF, by_layer, on_device=True)
    assert found.device == plain.device
    assert found.host == plain.host + 10 * MIB


def test_blocks_with_a_window_keep_no_more_than_it() -> None:
    memory = TARGET.memory
    assert memory is not None
    blocks = [b.model_copy(update={"windowed": i != 3}) for i, b in enumerate(memory.blocks)]
    windowed = TARGET.model_copy(update={"memory": memory.model_copy(update={"blocks": blocks, "window": 1000})})
    found = told(OFF, windowed, context=65_536)
    cells = 3 * 1536 + 65_536  # 1,000 and a batch of 512, rounded up to 256
    assert found.bytes_of("target", "cache") == cells * 512 * 2


class TestWithheld:
    def words(self, target: ModelInfo = TARGET, arm: Arm = OFF, draft: ModelInfo | None = None, **settings: Any) -> str:
        found = estimate_arm(engine(**settings), arm, target, draft, on_device=False)
        assert isinstance(found, Withheld)
        return found.withheld

    def test_a_cache_of_another_kind(self) -> None:
        memory = TARGET.memory
        assert memory is not None
        other = TARGET.model_copy(update={"memory": memory.model_copy(update={"unknown": "it keeps its cache compressed"})})
        assert self.words(other) == "target: it keeps its cache compressed"
        assert self.words(draft=other, arm=DRAFT) == "target: it keeps its cache compressed"

    def test_a_host_that_has_not_told(self) -> None:
        assert "has not told what target is made of" in self.words(TARGET.model_copy(update={"memory": None}))

    def test_what_moves_weights_about(self) -> None:
        assert "--n-cpu-moe" in self.words(extra={"--n-cpu-moe": 4})

    def test_a_type_of_cache_that_is_not_known(self) -> None:
        assert "q3_9" in self.words(kv_type_k="q3_9")


class TestLargestContext:
    ROOM = Room(400 * MIB, "GPU memory", True)

    def test_the_helper_costs_context(self) -> None:
        without = largest_context(engine(), OFF, TARGET, None, self.ROOM)
        with_it = largest_context(engine(), DRAFT, TARGET, HELPER, self.ROOM)
        assert (without, with_it) == (65_536, 60_928)
        for context, fits in ((60_928, True), (60_928 + 256, False)):
            found = told(DRAFT, draft=HELPER, context=context, on_device=True)
            assert (self.ROOM.taken(found) <= self.ROOM.n_bytes) is fits

    def test_a_reserve_is_kept_free(self) -> None:
        found = largest_context(engine(), OFF, TARGET, None, self.ROOM, reserve_bytes=200 * MIB)
        assert isinstance(found, int)
        assert 0 < found < 65_536

    def test_nothing_fits_where_the_weights_do_not(self) -> None:
        assert largest_context(engine(), OFF, TARGET, None, Room(2 * MIB, "memory", False)) == 0

    def test_withheld_where_nothing_can_be_told(self) -> None:
        bare = TARGET.model_copy(update={"memory": None})
        assert isinstance(largest_context(engine(), OFF, bare, None, self.ROOM), Withheld)


def test_room_is_that_of_the_devices_where_there_are_any() -> None:
    base: dict[str, Any] = {"agent_version": "1", "hostname": "h", "os": {}, "boot_id": "b", "cpu_model": "c", "n_cores": 1}
    lists: dict[str, Any] = {"memory_bytes": 64, "runtimes": [], "models": []}
    cpu = HostInventory(**base, **lists, devices=[{"uuid": "c", "kind": "cpu", "name": "c", "memory_bytes": 64}])  # type: ignore[list-item]
    gpus = cpu.model_copy(update={"devices": [cpu.devices[0].model_copy(update={"kind": "gpu", "memory_bytes": 24})] * 2})
    assert Room.of(cpu) == Room(64, "memory", False)
    assert Room.of(gpus) == Room(48, "GPU memory", True)
