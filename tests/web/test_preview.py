"""The preview: order, each host's answer and commands, what is worth a thought, and how long it takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from speccore.inventory import BlockShape, Device, MemoryShape
from speccore.spec import ExperimentSpec
from speccore.workloads import builtin

from specweb.dashboard.form_preview import BAR, MOST_TRIALS, preview_shown
from specweb.experiments.models import Experiment, Host
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_host, revoke_host, store_inventory
from specweb.experiments.services.preview import HostPreview, Preview, preview
from specweb.experiments.services.submission import seed_workload, submit
from specweb.results.cost_queries import trial_costs
from specweb.results.services.reports import create_trials
from tests.web import sample
from tests.worlds import World, inventory, spec

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def add_host(world: World, name: str, *, seen_s: float | None = 1, **changes: Any) -> Host:
    host, _ = create_host(world.team, name)
    store_inventory(host, inventory(**changes), NOW)
    Host.objects.filter(pk=host.pk).update(last_seen_at=None if seen_s is None else NOW - timedelta(seconds=seen_s))
    return host


@pytest.fixture
def ready(world: World) -> World:
    store_inventory(world.host, inventory(), NOW)
    Host.objects.filter(pk=world.host.pk).update(last_seen_at=NOW)
    return world


def shown(world: World, asked: ExperimentSpec | None = None, **more: Any) -> Preview:
    return preview(asked or spec(), world.team, now=NOW, **more)


def by_name(found: Preview) -> dict[str, HostPreview]:
    return {h.name: h for h in found.hosts}


def warned(found: Preview) -> dict[str, str]:
    return {w.field: w.message for w in found.warnings}


def test_the_order_is_the_plan_that_will_be_run(ready: World) -> None:
    found = shown(ready)
    experiment = submit(spec(), ready.team, ready.owner)
    assert len(dispatch_waiting(NOW, online_within=timedelta(seconds=30), on_queued=create_trials)) == 1
    job = experiment.jobs.get()
    planned = [(t["block"], t["position"], t["arm"], t["points"]) for t in job.plan["trials"]]
    assert [(t.block, t.position, t.arm, t.points) for t in found.order] == planned
    assert [t.number for t in found.order] == [1, 2, 3, 4, 5, 6]
    assert {(t.arm, t.mode) for t in found.order} == {("off", "off"), ("draft-4", "draft")}
    assert (found.n_trials, found.n_requests) == (6, 12)


def test_several_at_once_show_their_requests_and_slots(ready: World) -> None:
    seed_workload(builtin()["count"])
    points = [{"workload": "count", "concurrency": c, "probes": 2} for c in (1, 4)]
    found = shown(ready, spec(points=points, engine={"slots": 4, "context": 512}))
    assert (found.n_trials, found.n_requests) == (6, 6 * (2 + 24))
    (host,) = found.hosts
    for command in host.commands:
        said = " ".join(part.text for part in command.parts)
        assert "--parallel 4" in said
        assert "--ctx-size 2048" in said  # which the engine divides among its slots


def test_what_a_load_lacks_is_said(ready: World) -> None:
    seed_workload(builtin()["count@1"])
    seed_workload(builtin()["free-text@1"])
    drawn = {"sampling": {"temperature": 0.8}}
    points = [{"workload": "free-text@1", "concurrency": 6}, {"workload": "count@1", "concurrency": 4, **drawn}]
    told = [(w.field, w.message) for w in shown(ready, spec(points=points, engine={"slots": 6})).warnings if "concurrency" in w.field]
    alone = "whether answers stay right under load shows only beside the same work one request at a time: add a point with concurrency 1"
    assert told == [
        ("points.0.concurrency", "6 at once are warmed up with 4 requests, since free-text@1 has no more warm-up prompts"),
        ("points.1.concurrency", alone),  # free text has nothing to check
    ]
    one_by_one, greedy = [{"workload": "count@1", **drawn}], [{"workload": "count@1", "concurrency": 8}]
    for points in ([*one_by_one, greedy[0] | drawn], greedy):  # greedy answers are asked once more, one at a time
        assert not any("concurrency" in w.field for w in shown(ready, spec(points=points, engine={"slots": 8})).warnings)


def test_of_thousands_of_trials_the_first_blocks_are_laid_out_and_the_others_counted(ready: World) -> None:
    arms = [{"name": "off", "mode": "off"}] + [{"name": f"n-{i}", "mode": "ngram-simple", "draft_limit": i} for i in range(1, 40)]
    found = preview_shown(shown(ready, spec(arms=arms, blocks=100)), lambda _: [])
    laid_out = [trial for block in (*found.blocks, *found.more_blocks) for trial in block.trials]
    assert (found.n_trials, len(laid_out)) == (4000, MOST_TRIALS)
    assert len(found.blocks) + len(found.more_blocks) + found.n_blocks_left == 100
    small = preview_shown(shown(ready), lambda _: [])
    assert (len(small.blocks), small.more_blocks, small.n_blocks_left) == (3, [], 0)


def test_commands_have_the_hosts_own_paths_and_the_difference(ready: World) -> None:
    (host,) = shown(ready).hosts
    assert (host.fits, host.chosen, host.why_not, host.refusals, host.state) == (True, True, "", [], "online")
    assert host.runtime == "llama-server 0.1.0-dev (build 1, commit 7e4c0a9) · cpu"
    assert host.target == "target"
    off, draft = host.commands
    words = " ".join(p.text for p in draft.parts)
    assert words.startswith("/opt/llama/llama-server --model /models/target.gguf --host 127.0.0.1 --port {port} ")
    assert [p.text for p in draft.parts if p.added] == [
        "--spec-type draft-simple",
        "--spec-draft-model /models/draft.gguf",
        "--spec-draft-n-max 4",
    ]
    assert not any(p.added for p in off.parts)
    assert (off.missing, draft.missing) == ([], [])


def test_the_command_is_the_one_that_the_dispatcher_freezes(ready: World) -> None:
    (host,) = shown(ready).hosts
    experiment = submit(spec(), ready.team, ready.owner)
    dispatch_waiting(NOW, online_within=timedelta(seconds=30), on_queued=create_trials)
    frozen = experiment.jobs.get().commands["draft-4"]
    bound = {
        "{executable}": "/opt/llama/llama-server",
        "{target}": "/models/target.gguf",
        "{draft}": "/models/draft.gguf",
        "{host}": "127.0.0.1",
    }
    told = " ".join(p.text for c in host.commands if c.arm == "draft-4" for p in c.parts)
    assert told == " ".join(bound.get(word, word) for word in frozen)


class TestOtherHosts:
    def test_why_each_cannot(self, ready: World) -> None:
        models = inventory().models
        add_host(ready, "bare", models=models[:1])
        add_host(ready, "builds", runtimes=[])
        add_host(ready, "gone", seen_s=3600)
        add_host(ready, "never", seen_s=None)
        add_host(ready, "lost", seen_s=3 * 86400)
        Host.objects.filter(pk=add_host(ready, "full").pk).update(drain_requested_at=NOW)
        create_host(ready.team, "silent-about-itself")
        revoke_host(add_host(ready, "shut"), now=NOW, by="owner")
        hosts = by_name(shown(ready))
        assert {n: (h.state, h.fits, h.chosen, h.why_not) for n, h in hosts.items()} == {
            "bare": ("online", False, False, "has no model 'draft'"),
            "box": ("online", True, True, ""),
            "builds": ("online", False, False, "has no engine build that is llama-server"),
            "full": ("draining", True, False, "takes no new jobs (draining)"),
            "gone": ("stalled", True, False, "is silent since 2026-11-30 11:00:00 UTC"),
            "lost": ("lost", True, False, "is silent since 2026-11-27 12:00:00 UTC"),
            "never": ("never seen", True, False, "was never heard of"),
        }
        assert hosts["bare"].commands == []
        assert hosts["full"].commands

    def test_another_teams_hosts_are_not_there(self, ready: World) -> None:
        store_inventory(ready.other_host, inventory(), NOW)
        assert [h.name for h in shown(ready).hosts] == ["box"]

    def test_a_flag_that_a_host_does_not_allow(self, ready: World) -> None:
        add_host(ready, "open", allowed_flags=["--yarn-orig-ctx"])
        hosts = by_name(shown(ready, spec(engine={"extra": {"--yarn-orig-ctx": 512}})))
        assert hosts["open"].chosen
        assert hosts["box"].why_not == "can't run it: engine.extra: this host doesn't allow --yarn-orig-ctx"
        assert hosts["box"].refusals == [
            "engine.extra: this host doesn't allow --yarn-orig-ctx. "
            "Remove the flag, or ask the host's owner to add it to allowed_flags in the agent's configuration."
        ]

    def test_a_flag_that_no_host_allows_any_more_is_a_warning(self, ready: World) -> None:
        found = shown(ready, spec(engine={"extra": {"--yarn-orig-ctx": 512}}))
        assert (
            "no host of the team can run it as it is: box can't run it: engine.extra: this host doesn't allow" in warned(found)["placement"]
        )
        assert found.minutes is None

    def test_the_idlest_is_chosen_as_the_dispatcher_would(self, ready: World) -> None:
        add_host(ready, "aaa")
        submit(spec(placement={"hosts": ["aaa"]}), ready.team, ready.owner)
        dispatch_waiting(NOW, online_within=timedelta(seconds=30), on_queued=create_trials)
        hosts = by_name(shown(ready))
        assert (hosts["box"].chosen, hosts["aaa"].chosen, hosts["aaa"].why_not) == (True, False, "could run it; box is taken first")
        experiment = submit(spec(), ready.team, ready.owner)
        dispatch_waiting(NOW, online_within=timedelta(seconds=30), on_queued=create_trials)
        assert experiment.jobs.get().host == ready.host


class TestPlacement:
    @pytest.mark.parametrize(
        ("placement", "chosen"),
        [
            ({}, {"attic"}),
            ({"count": 2}, {"attic", "box"}),
            ({"labels": {"room": "attic"}}, {"attic"}),
            ({"each": True}, {"attic", "box", "gone"}),
            ({"hosts": ["box", "gone"]}, {"box", "gone"}),
        ],
    )
    def test_who_is_chosen(self, ready: World, placement: dict[str, Any], chosen: set[str]) -> None:
        add_host(ready, "attic", labels={"room": "attic"})
        add_host(ready, "gone", seen_s=3600)
        hosts = by_name(shown(ready, spec(placement=placement)))
        assert {n for n, h in hosts.items() if h.chosen} == chosen
        if placement.get("labels"):
            assert hosts["box"].why_not == "is no host with room=attic"
        if placement.get("hosts"):
            assert hosts["attic"].why_not == "is not among the hosts asked for"
            assert hosts["gone"].why_not == "is silent since 2026-11-30 11:00:00 UTC"

    def test_more_than_can_take_it_now(self, ready: World) -> None:
        assert (
            warned(shown(ready, spec(placement={"count": 3})))["placement.count"]
            == "3 hosts asked for, 1 can take it now: 2 jobs would wait"
        )

    def test_a_named_host_that_cannot(self, ready: World) -> None:
        add_host(ready, "bare", models=[])
        create_host(ready.team, "new")
        found = shown(ready, spec(placement={"hosts": ["box", "bare", "new"], "count": 2}))
        assert {f: w for f, w in warned(found).items() if f.startswith("placement")} == {
            "placement.hosts.1": "its job would wait: bare has no model 'draft', 'target'",
            "placement.hosts.2": "new has not said yet what it offers: its job would wait",
            "placement": "hosts are named, so labels, count and each are not looked at",
        }

    def test_no_host_at_all(self, world: World) -> None:
        found = shown(world)
        assert (found.hosts, found.minutes, found.n_trials) == ([], None, 6)
        assert warned(found)["placement"] == "no host can run it yet: it would wait"


class TestWarnings:
    def test_a_sound_experiment_has_none(self, ready: World) -> None:
        assert shown(ready, spec(blocks=5)).warnings == []

    def test_what_is_told_of_the_spec(self, ready: World) -> None:
        asked = spec(
            blocks=2,
            engine={"prefix_cache": True, "threads": 4},
            arms=[
                {"name": "off", "mode": "off"},
                {"name": "long", "mode": "draft", "draft_model": "draft", "draft_limit": 64},
                {"name": "n", "mode": "ngram-simple"},
            ],
            points=[{"workload": "tiny", "max_tokens": 32, "probes": 2}],
        )
        found = shown(ready, asked)
        assert all(w.code == "caution" for w in found.warnings)
        told = warned(found)
        assert told["blocks"].startswith("with 2 of them nothing will be said about speed")
        assert told["points.0.probes"].startswith("4 different prompts will be asked")
        assert told["arms.1.draft_limit"].startswith("drafts of 64 tokens are as long as an answer of at most 32")
        assert "try 4" in told["arms.2.ngram_size"]
        assert "4 threads leave no core of box (4)" in told["engine.threads"]
        assert "engine.prefix_cache" in told
        assert "wide" in warned(shown(ready, spec(blocks=3)))["blocks"]

    def test_what_is_told_of_a_chosen_host(self, ready: World) -> None:
        target, draft = inventory().models
        gpu = Device(uuid="g", kind="gpu", name="Card", memory_bytes=8 << 30)
        models = [
            target.model_copy(update={"size_bytes": 7 << 30, "context_length": 2048, "vocab_size": 100, "n_layers": 4}),
            draft.model_copy(update={"size_bytes": 2 << 30, "vocab_size": 99}),
        ]
        store_inventory(ready.host, inventory(devices=[gpu], models=models), NOW)
        told = [(w.field, w.message) for w in shown(ready, spec(blocks=5)).warnings]
        assert told == [
            ("engine.context", "target on box was trained for 2,048 tokens: the engine may give a slot no more than that"),
            ("arms.1.draft_model", "target and helper have 9 GiB together, its GPU memory on box 8 GiB"),
            (
                "arms.1.draft_model",
                "draft and target differ in size of vocabulary (99 tokens, the target's 100): the pair starts, and the helper may only guess worse (on box)",
            ),
        ]

    def test_an_mtp_arm_on_a_model_without_such_a_head_is_refused(self, ready: World) -> None:
        target, draft = inventory().models
        arms = [spec().arms[0].model_dump(), {"name": "m", "mode": "mtp", "draft_limit": 2}]
        bare, headed = (target.model_copy(update={"n_layers": 5, "has_mtp": there}) for there in (False, True))
        store_inventory(ready.host, inventory(models=[bare, draft]), NOW)
        (box,) = shown(ready, spec(arms=arms)).hosts
        assert box.why_not == "can't run it: arm 'm': target has no head for mtp"
        assert box.refusals == ["arm 'm': target has no head for mtp. Take a model file that has one, or another mode."]
        store_inventory(ready.host, inventory(models=[headed, draft]), NOW)
        assert [h.fits for h in shown(ready, spec(arms=arms)).hosts] == [True]

    def test_a_target_larger_than_the_memory(self, ready: World) -> None:
        target, draft = inventory().models
        store_inventory(ready.host, inventory(models=[target.model_copy(update={"size_bytes": 9 << 30}), draft]), NOW)
        assert warned(shown(ready, spec(blocks=5)))["target.model"] == "target has 9 GiB, its memory on box 8 GiB"


class TestMinutes:
    def test_without_history_a_stated_guess(self, ready: World) -> None:
        found = shown(ready)
        assert found.minutes is not None
        assert found.minutes == found.hosts[0].minutes
        assert found.minutes.basis.startswith("a guess from the model's size")
        assert 0 < found.minutes.low < found.minutes.high / 2

    def test_from_earlier_trials_of_this_host(self, db: Any) -> None:
        people = sample.people()
        run = sample.finished(people.team, people.owner)
        costs = trial_costs(people.team, "demo-target")
        assert set(costs) == {run.job.host_id}
        assert len(costs[run.job.host_id]) == 20
        assert trial_costs(people.team, "b" * 64) == costs
        assert trial_costs(people.team, "demo-draft") == {}
        assert trial_costs(people.other, "demo-target") == {}
        again = preview(run.experiment.parsed_spec, people.team, now=datetime.now(UTC), history=costs)
        assert again.minutes is not None
        took = sum((a.ended_at - a.started_at).total_seconds() for a in run.attempts) / 60
        assert again.minutes.low < took < again.minutes.high
        assert again.minutes.high < 2 * took
        assert again.minutes.basis == "from 20 earlier trials of this model on this host"

    def test_one_statement_for_the_costs(self, db: Any) -> None:
        people = sample.people()
        sample.finished(people.team, people.owner)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            trial_costs(people.team, "demo-target")
        assert len(seen) == 1


def test_each_arm_is_shown_with_its_memory_beside_the_hosts(ready: World) -> None:
    shape = MemoryShape(blocks=[BlockShape(weights=2**30, k=1024, v=1024)] * 4, embedding_bytes=2**28, other_bytes=0, width=1024)
    models = [m.model_copy(update={"memory": shape, "context_length": 65_536}) for m in inventory().models]
    store_inventory(ready.host, inventory(models=models), NOW)
    found = shown(ready, spec(engine={"context": 4096}))
    off, draft = found.hosts[0].memory
    assert (off.arm, off.fits, draft.arm, draft.fits) == ("off", True, "draft-4", False)
    assert off.words().startswith("needs about 4.32 GiB of 8 GiB of memory; all 65,536 tokens ")
    assert warned(found)["arms.1.draft_model"] == f"draft-4 {draft.words()} (on {ready.host.name})"
    assert draft.largest == 0

    (line,) = preview_shown(found, lambda _: []).hosts
    fits, over = line.memory
    assert [what for what, *_ in fits.parts] == ["weights", "cache", "buffers"]
    assert fits.parts[0][3] == "weights 4.25 GiB"
    assert sum(width for _, _, width, _ in over.parts) == pytest.approx(BAR, abs=0.05)  # the largest fills the scale
    assert sum(width for _, _, width, _ in over.parts) > over.room == fits.room == fits.reserve
    assert [round(x, 1) for _, x, *_ in fits.parts][1:] == [round(fits.parts[0][2], 1), round(fits.parts[0][2] + fits.parts[1][2], 1)]
    kept = preview_shown(shown(ready, spec(engine={"context": 4096}, requirements={"free_memory_mib": 2048})), lambda _: []).hosts[0].memory
    assert kept[0].reserve == pytest.approx(kept[0].room * 0.75, abs=0.05)


def test_a_context_beyond_the_model_s_is_told_of_hosts_that_are_offline_too(ready: World) -> None:
    Host.objects.update(last_seen_at=NOW - timedelta(days=2))
    models = [m.model_copy(update={"context_length": 2048}) for m in inventory().models]
    store_inventory(ready.host, inventory(models=models), NOW)
    found = shown(ready, spec(engine={"context": 4096}))
    assert not any(h.chosen for h in found.hosts)
    assert "was trained for 2,048 tokens" in warned(found)["engine.context"]


@pytest.mark.parametrize("n", [0, 4])
def test_three_statements_however_many_hosts(ready: World, n: int) -> None:
    for i in range(n):
        add_host(ready, f"more-{i}")
    with CaptureQueriesContext(connection) as seen:
        found = shown(ready)
    assert len(found.hosts) == n + 1
    assert len(seen) == 3, [q["sql"][:200] for q in seen]


def test_nothing_is_stored(ready: World) -> None:
    shown(ready)
    assert not Experiment.objects.exists()
