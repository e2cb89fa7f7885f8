"""A helper that the engine would not draft with: no host gets the job, the preview says why, and a doubtful pair is warned of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from speccore.inventory import ModelInfo, TokenizerInfo

from specweb.experiments.models import Host, Job
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.preview import Preview, preview
from specweb.experiments.services.submission import submit
from specweb.results.services.reports import create_trials
from tests.worlds import World, inventory, spec

WHY = "draft can't draft for target: its tokenizer is of another kind (llama; the target's is gpt2)"


def offer(world: World, draft: dict[str, Any], **changes: Any) -> None:
    """The host offers a target and a helper whose files say these things of their tokenizers."""
    facts: dict[str, Any] = {"kind": "gpt2", "n_tokens": 400, "tokens_hash": "t", "prefix_hashes": ["p"], "merges_hash": "m"}
    held: list[ModelInfo] = []
    for model, of in zip(inventory().models, (facts, facts | draft)):
        tokenizer = TokenizerInfo(**of)
        held.append(model.model_copy(update={"tokenizer": tokenizer, "vocab_size": tokenizer.n_tokens}))
    store_inventory(world.host, inventory(models=held, **changes), timezone.now())
    Host.objects.filter(pk=world.host.pk).update(last_seen_at=timezone.now())


def shown(world: World) -> Preview:
    return preview(spec(blocks=5), world.team, now=timezone.now())


def test_a_job_waits_and_says_why(world: World) -> None:
    offer(world, {"kind": "llama"})
    experiment = submit(spec(), world.team, world.owner)
    assert dispatch_waiting(timezone.now(), online_within=timedelta(seconds=30), on_queued=create_trials) == []
    assert WHY in Job.objects.get(experiment=experiment).reason


def test_the_preview_says_why_and_what_to_do(world: World) -> None:
    offer(world, {"kind": "llama"})
    (host,) = shown(world).hosts
    assert not host.fits
    assert WHY in host.why_not
    assert host.refusals == [
        f"{WHY} (the engine would start, and serve without speculation). Choose a helper model with the target's vocabulary."
    ]


def test_a_pair_that_fits_is_not_spoken_of(world: World) -> None:
    offer(world, {})
    assert shown(world).hosts[0].fits
    assert shown(world).warnings == []


@pytest.mark.parametrize(
    ("draft", "differs"),
    [
        ({"merges_hash": "other"}, "merges"),
        ({"n_tokens": 399, "prefix_hashes": []}, "size of vocabulary (399 tokens, the target's 400)"),
    ],
)
def test_a_doubtful_pair_starts_with_a_warning(world: World, draft: dict[str, Any], differs: str) -> None:
    offer(world, draft)
    found = shown(world)
    assert found.hosts[0].fits
    assert [(w.field, w.code, w.message) for w in found.warnings] == [
        (
            "arms.1.draft_model",
            "caution",
            f"draft and target differ in {differs}: the pair starts, and the helper may only guess worse (on box)",
        )
    ]


def test_an_older_build_is_warned_of(world: World) -> None:
    runtime = inventory().runtimes[0]
    older = runtime.model_copy(update={"capabilities": runtime.capabilities.model_copy(update={"dialect": "draft-flag"})})
    offer(world, {"kind": "llama"}, runtimes=[older])
    found = shown(world)
    assert found.hosts[0].fits
    assert [w.message.split(":")[0] for w in found.warnings] == ["draft can't be expected to draft for target"]
