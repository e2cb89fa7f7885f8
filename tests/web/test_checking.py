"""One check for every way in: all faults at once, each beside its field, with the nearest known name and what to do."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from speccore.spec import SpecProblem
from speccore.yamltext import data_to_yaml

from specweb.experiments.models import Host, Workload
from specweb.experiments.services.checking import check, check_yaml
from specweb.experiments.services.hosts import create_host, revoke_host, store_inventory
from specweb.experiments.services.submission import seed_workload
from tests.web.test_preview import NOW
from tests.worlds import World, inventory, workload

OFF = {"name": "off", "mode": "off"}
DRAFT = {"name": "d", "mode": "draft", "draft_model": "draft", "draft_limit": 4}
GOOD: dict[str, Any] = {
    "name": "x",
    "target": {"model": "target"},
    "arms": [OFF, DRAFT],
    "points": [{"workload": "tiny"}],
    "warmup": {"mode": "fixed"},
}


@pytest.fixture
def ready(world: World) -> World:
    store_inventory(world.host, inventory(labels={"room": "attic", "gpu": "no"}), NOW)
    return world


def problems(world: World, **changes: Any) -> list[SpecProblem]:
    checked = check(GOOD | changes, world.team)
    assert (checked.spec is None) == bool(checked.problems)
    return checked.problems


def test_a_sound_experiment_passes(ready: World) -> None:
    checked = check(GOOD, ready.team)
    assert checked.problems == []
    assert checked.spec is not None
    assert check_yaml(data_to_yaml(GOOD).encode(), ready.team).spec == checked.spec
    assert check_yaml(json.dumps(GOOD).encode(), ready.team).spec == checked.spec


def test_a_sweep_becomes_its_arms_and_faults_name_what_was_written(ready: World) -> None:
    sweep = DRAFT | {"name": "d-{draft_limit}", "draft_limit": [2, 4]}
    checked = check(GOOD | {"arms": [OFF, sweep, DRAFT]}, ready.team)
    assert checked.spec is not None, checked.problems
    assert [a.name for a in checked.spec.arms] == ["off", "d-2", "d-4", "d"]
    arms = [OFF, sweep | {"draft_model": ["draft", "drafty"]}, DRAFT | {"draft_model": "drift"}]
    found = [(p.field, p.message.partition(";")[0]) for p in problems(ready, arms=arms)]
    assert found == [
        ("arms.1.draft_model", "no host of this team ever had a model 'drafty'"),
        ("arms.2.draft_model", "no host of this team ever had a model 'drift'"),
    ]
    lined = check_yaml(data_to_yaml(GOOD | {"arms": arms}).encode(), ready.team).problems
    assert all(p.line for p in lined)


@pytest.mark.parametrize(
    ("changes", "field", "value", "words", "code"),
    [
        ({"points": [{"workload": "tyny"}]}, "points.0.workload", "'tyny'", "there is no workload 'tyny'; near: tiny", "spec_invalid"),
        (
            {"points": [{"workload": "tiny@9"}]},
            "points.0.workload",
            "'tiny@9'",
            "there is no workload 'tiny@9'; near: tiny@1",
            "spec_invalid",
        ),
        (
            {"points": [{"workload": "zzz"}]},
            "points.0.workload",
            "'zzz'",
            "there is no workload 'zzz'; there is tiny, tiny@1",
            "spec_invalid",
        ),
        ({"points": [{"workload": "tiny", "probes": 50}]}, "points.0.probes", "", "workload 'tiny' has 16 items", "spec_invalid"),
        ({"warmup": {"requests": 9}}, "warmup.requests", "", "Lower warmup.requests", "spec_invalid"),
        (
            {"blocks": 100, "arms": [OFF, *[DRAFT | {"name": f"d{i}", "mode": "ngram-mod", "draft_model": None} for i in range(39)]]}
            | {"points": [{"workload": "tiny", "sampling": {"temperature": i / 10}, "probes": 1} for i in range(4)]},
            "blocks",
            "100",
            "the experiment has 15,700 starts of the engine, more than the 10,000 of one job",
            "spec_invalid",
        ),
        (
            {"target": {"model": "tarqet"}},
            "target.model",
            "'tarqet'",
            "no host of this team ever had a model 'tarqet'; near: target",
            "unknown_model",
        ),
        ({"arms": [OFF, DRAFT | {"draft_model": "x"}]}, "arms.1.draft_model", "'x'", "(see the Hosts page)", "unknown_model"),
        (
            {"arms": [OFF, {"name": "s", "mode": "suffix"}]},
            "arms.1.mode",
            "",
            "llama-server has no mode 'suffix'; its modes are draft,",
            "arm_not_supported",
        ),
        (
            {"arms": [OFF, {"name": "s", "mode": "ngram-simple", "p_min": 0.5}]},
            "arms.1.p_min",
            "",
            "mode ngram-simple of llama-server has no p_min. Remove p_min",
            "arm_not_supported",
        ),
        (
            {"engine": {"extra": {"--log-file": "x"}}},
            "engine.extra.--log-file",
            "",
            "--log-file is set by SpecWeb itself. Remove",
            "flag_not_allowed",
        ),
        (
            {"engine": {"extra": {"--draft-max": 3}}},
            "engine.extra.--draft-max",
            "",
            "belongs to speculation: set it in the arm",
            "flag_not_allowed",
        ),
        (
            {"engine": {"extra": {"--override-tensors": "x"}}},
            "engine.extra.--override-tensors",
            "",
            "no engine build on this team's hosts has a flag --override-tensors (did you mean --override-tensor?): correct it",
            "flag_not_allowed",
        ),
        (
            {"arms": [OFF, DRAFT | {"extra": {"--spec-draft-sampling": "greedy"}}]},
            "arms.1.extra.--spec-draft-sampling",
            "",
            "no engine build on this team's hosts has a flag --spec-draft-sampling",
            "flag_not_allowed",
        ),
        (
            {"arms": [OFF, DRAFT | {"extra": {"--spec-draft-hf": "x/y"}}]},
            "arms.1.extra.--spec-draft-hf",
            "",
            "--spec-draft-hf is none of the flags of speculation that an arm may set",
            "flag_not_allowed",
        ),
        (
            {"arms": [OFF, DRAFT | {"also": ["ngram-cache"], "also_limit": 4}]},
            "arms.1.also_limit",
            "",
            "mode ngram-cache of llama-server has no also_limit. Remove also_limit",
            "arm_not_supported",
        ),
        (
            {"engine": {"extra": {"--numa": "--api-key"}}},
            "engine.extra.--numa",
            "'--api-key'",
            "would be read as a flag. Give a value",
            "flag_not_allowed",
        ),
        (
            {"runtime": {"engine": "vllm"}},
            "runtime.engine",
            "'vllm'",
            "no host of this team offers vllm; there is llama-server: choose that, or name a build of vllm",
            "no_host_can_run",
        ),
        (
            {"placement": {"hosts": ["box", "bax"]}},
            "placement.hosts.1",
            "'bax'",
            "this team has no host 'bax'; near: box",
            "no_host_can_run",
        ),
        (
            {"placement": {"hosts": ["their-box"]}},
            "placement.hosts.0",
            "'their-box'",
            "this team has no host 'their-box'",
            "no_host_can_run",
        ),
        (
            {"placement": {"labels": {"room": "atic"}}},
            "placement.labels.room",
            "'atic'",
            "no host with room=atic; there is room=attic",
            "no_host_can_run",
        ),
        ({"placement": {"labels": {"x": "y"}, "each": True}}, "placement.labels.x", "'y'", "no host with x=y", "no_host_can_run"),
    ],
)
def test_what_the_team_does_not_have(ready: World, changes: dict[str, Any], field: str, value: str, words: str, code: str) -> None:
    (problem,) = problems(ready, **changes)
    assert (problem.field, problem.value, problem.code) == (field, value, code)
    assert words in problem.message


def test_a_flag_of_no_known_build_is_left_open_where_no_build_is_known(world: World) -> None:
    fields = {p.field for p in problems(world, engine={"extra": {"--override-tensors": "x"}})}
    assert "engine.extra.--override-tensors" not in fields


FORBIDDEN = {"engine": {"extra": {"--yarn-orig-ctx": 512, "--numa": "isolate"}}}
REMEDY = "Remove the flag, or ask the host's owner to add it to allowed_flags in the agent's configuration."


def host_that_allows(world: World, name: str, *flags: str) -> Host:
    host, _ = create_host(world.team, name)
    store_inventory(host, inventory(allowed_flags=list(flags), labels={"flags": "yes" if flags else "no"}), NOW)
    return host


class TestFlagsThatNoHostAllows:
    """The flag could be allowed, but by the host's owner alone: a job that waits for that would tell nobody."""

    def test_is_refused_by_name_with_the_remedy(self, ready: World) -> None:
        host_that_allows(ready, "other", "--numa")
        (problem,) = problems(ready, **FORBIDDEN)
        assert (problem.field, problem.code) == ("engine.extra.--yarn-orig-ctx", "flag_not_allowed")
        assert problem.message == f"none of the hosts box, other allows --yarn-orig-ctx. {REMEDY}"

    def test_in_a_file_with_its_line(self, ready: World) -> None:
        host_that_allows(ready, "other", "--numa")
        (problem,) = check_yaml(data_to_yaml(GOOD | FORBIDDEN).encode(), ready.team).problems
        assert problem.field == "engine.extra.--yarn-orig-ctx"
        assert data_to_yaml(GOOD | FORBIDDEN).splitlines()[(problem.line or 0) - 1].strip() == "--yarn-orig-ctx: 512"

    def test_one_host_that_allows_it_is_enough(self, ready: World) -> None:
        host_that_allows(ready, "other", "--numa", "--yarn-orig-ctx")
        assert problems(ready, **FORBIDDEN) == []

    @pytest.mark.parametrize("placement", [{"hosts": ["box"]}, {"labels": {"room": "attic"}}])
    def test_but_among_those_that_the_placement_could_take(self, ready: World, placement: dict[str, Any]) -> None:
        host_that_allows(ready, "other", "--numa", "--yarn-orig-ctx")
        told = {p.field: p.message for p in problems(ready, **FORBIDDEN, placement=placement)}
        assert told == {f"engine.extra.{flag}": f"host box doesn't allow {flag}. {REMEDY}" for flag in ("--yarn-orig-ctx", "--numa")}

    def test_another_name_of_a_flag_is_that_flag(self, ready: World) -> None:
        names = {n for n, flag in inventory().runtimes[0].capabilities.flags.items() if flag == "--override-tensor"}
        assert names > {"--override-tensor"}
        host_that_allows(ready, "other", "--override-tensor")
        assert all(problems(ready, engine={"extra": {n: "x=CPU"}}) == [] for n in names if n.startswith("--"))

    def test_hosts_that_have_told_nothing_are_no_reason(self, world: World) -> None:
        assert not any(p.field.startswith("engine.") for p in problems(world, **FORBIDDEN))
        host_that_allows(world, "other")
        assert {p.field for p in problems(world, **FORBIDDEN)} == {"engine.extra.--yarn-orig-ctx", "engine.extra.--numa"}

    def test_a_host_of_another_team_or_shut_out_allows_nothing(self, ready: World) -> None:
        store_inventory(ready.other_host, inventory(allowed_flags=["--yarn-orig-ctx", "--numa"]), NOW)
        revoke_host(host_that_allows(ready, "gone", "--yarn-orig-ctx", "--numa"), now=NOW, by="owner")
        assert len(problems(ready, **FORBIDDEN)) == 2


def test_labels_that_no_single_host_has_all_of(ready: World) -> None:
    other, _ = create_host(ready.team, "other")
    Host.objects.filter(pk=other.pk).update(labels={"gpu": "yes"})
    (problem,) = problems(ready, placement={"labels": {"room": "attic", "gpu": "yes"}})
    assert (problem.field, problem.message) == (
        "placement.labels",
        "this team has no host with room=attic, gpu=yes: add one, or ask for fewer labels",
    )


def test_hosts_that_are_shut_out_are_none(ready: World) -> None:
    revoke_host(ready.host, now=NOW, by="owner")
    (problem,) = problems(ready, placement={"hosts": ["box"]})
    assert problem.message == "this team has no host 'box'; there is none yet"


def test_a_team_that_has_no_host_is_told_the_next_step(world: World) -> None:
    assert {p.field: p.message for p in problems(world)} == {
        "target.model": "no host of this team has told of any model yet: add a host first (see the Hosts page)",
        "arms.1.draft_model": "no host of this team has told of any model yet: add a host first (see the Hosts page)",
    }


def test_a_workload_that_exists_no_longer(ready: World) -> None:
    seed_workload(workload("gone"), ready.team)
    again = {"points": [{"workload": "gone@1"}]}
    assert problems(ready, **again) == []
    Workload.objects.filter(name="gone").delete()
    (problem,) = problems(ready, **again)
    assert problem.message.startswith("there is no workload 'gone@1'")


def test_another_teams_workloads_are_not_even_named(ready: World) -> None:
    seed_workload(workload("secret"), ready.other_team)
    (problem,) = problems(ready, points=[{"workload": "secrets"}])
    assert problem.message == "there is no workload 'secrets'; there is tiny, tiny@1"


def test_all_of_it_at_once(ready: World) -> None:
    found = problems(
        ready,
        target={"model": "nope"},
        arms=[OFF, DRAFT | {"draft_model": "nope"}, {"name": "s", "mode": "suffix"}],
        points=[{"workload": "nope"}, {"workload": "tiny"}],
        engine={"extra": {"--port": 1, "--foo-bar": 2}},
        placement={"hosts": ["nope", "box"]},
    )
    assert {p.field for p in found} == {
        "target.model",
        "arms.1.draft_model",
        "arms.2.mode",
        "points.0.workload",
        "engine.extra.--port",
        "engine.extra.--foo-bar",
        "placement.hosts.0",
    }


class TestYaml:
    def test_problems_tell_their_line(self, ready: World) -> None:
        text = b"name: x\ntarget: {model: nope}\narms:\n  - {name: off, mode: off}\n  - name: d\n    mode: draft\n    draft_limit: 0\npoints: [{workload: tiny}]\nwarmup: {mode: fixed}\n"
        assert [(p.line, p.field) for p in check_yaml(text, ready.team).problems] == [(7, "arms.1.draft_limit"), (5, "arms.1.draft_model")]
        fixed = text.replace(b"draft_limit: 0", b"draft_model: nope")
        assert sorted((p.line, p.field) for p in check_yaml(fixed, ready.team).problems) == [(2, "target.model"), (7, "arms.1.draft_model")]

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            (b"a: [", 1, "is neither YAML nor JSON: "),
            (b'{"name": "x", "name": "y"}', 1, "the key 'name' is there twice"),
            (b"name: \xff", 1, "it is no UTF-8 text"),
            (b"name: x\n---\nname: y\n", 2, "it holds more than one document"),
            (b"name: !!python/name:os.system", 1, "the tag !!python/name:os.system is not read"),
            (b"x" * 5_000_000, None, "it has 5,000,000 bytes, more than the 262,144 that are read"),
            (b"", None, "an experiment is a mapping of keys, not nothing"),
            (b"- 1", None, "an experiment is a mapping of keys, not a list"),
            (b"just text", None, "an experiment is a mapping of keys, not the text 'just text'"),
        ],
    )
    def test_files_that_are_no_experiment(self, ready: World, text: bytes, line: int | None, words: str) -> None:
        began = time.perf_counter()
        (problem,) = check_yaml(text, ready.team).problems
        assert (problem.field, problem.line) == ("", line)
        assert words in problem.message
        assert time.perf_counter() - began < 20  # one that swells would take minutes


@pytest.mark.parametrize("n", [0, 5])
def test_four_statements_however_many_hosts_arms_and_points(ready: World, n: int) -> None:
    store_inventory(ready.host, inventory(allowed_flags=["--numa"]), NOW)
    for i in range(n):
        host_that_allows(ready, f"more-{i}")
    data = GOOD | {
        "arms": [OFF, *[DRAFT | {"name": f"d{i}"} for i in range(n + 1)]],
        "points": [{"workload": "tiny", "sampling": {"temperature": i / 10}, "probes": 1} for i in range(n + 1)],
        "engine": {"extra": {"--numa": "distribute"}},
        "warmup": {"requests": 1},
    }
    data["points"] = data["points"][:4]
    with CaptureQueriesContext(connection) as seen:
        assert check(data, ready.team).problems == []
    assert len(seen) == 4, [q["sql"][:200] for q in seen]


def test_what_no_schema_allows_costs_no_statement(ready: World) -> None:
    with CaptureQueriesContext(connection) as seen:
        problems(ready, blocks=0)
    assert len(seen) == 0
