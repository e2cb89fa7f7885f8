"""Each verdict by each of its reasons, on at least two different roads through the analysis of a whole job.

What a road ends in must be plain to somebody who has not read the documentation: no codes, a number, and what to do next
where the answer is not the last word.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from speccore import next_steps, verdict
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import AttemptMeasurement, ComparisonResult, HostFacts, LoadMeasurement, Verdict
from speccore.outages import TrialFailure
from speccore.plan import plan_job
from speccore.protocol import JobPlan, ProbePlan, TrialPlan
from speccore.spec import ExperimentSpec

from tests.core.made import DRAFT, attempts, counters, number, spec_of, wobble, workload

MEASUREMENT = Path(__file__).parents[2] / "docs" / "measurement.md"
FACTS = JobFacts(noise_floor=0.005, hashes_verified=True, n_hashes=80)
TWICE = {"off": 1.0, "draft-4": 2.0}
IDLE = counters(drafted=0, accepted=0, verify_steps=0, decode_steps=63, emitted=63, eval_ms=2000.0, accepted_by_position=[])
DEAD = counters(drafted=84, accepted=2, verify_steps=28, decode_steps=61, emitted=63, eval_ms=2000.0, accepted_by_position=[1, 1, 0, 0])


def draft(limit: int = 4, **more: Any) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "d", "draft_limit": limit} | more


NGRAM = {"name": "ngram", "mode": "ngram-simple"}
CONTROL = {"name": "off-again", "mode": "off", "control": True}
IMPLIED = {"name": "off-implied", "mode": "off", "control": True, "extra": {"--no-async-scheduling": True}}

Change = Callable[[TrialPlan, ProbePlan], dict[str, Any]]
Edit = Callable[[AttemptMeasurement], dict[str, Any]]


@dataclass(frozen=True)
class Road:
    """A job and what it must end in. ``edit`` gives what is different in an attempt; ``arm`` is the one that is looked at."""

    name: str
    word: str
    reason: str
    arms: tuple[dict[str, Any], ...] = (draft(),)
    speeds: dict[str, float] | None = None
    arm: str = "draft-4"
    facts: JobFacts = FACTS
    change: Change | None = None
    edit: Edit | None = None
    noise: Callable[[TrialPlan, ProbePlan], float] = wobble
    without: tuple[str, ...] = ()
    failures: tuple[TrialFailure, ...] = ()
    point: int = 0
    spec: dict[str, Any] | None = None

    def compared(self) -> ComparisonResult:
        given: dict[str, Any] = {"points": [{"workload": "count", "probes": 4}]} | (self.spec or {})
        spec = spec_of(*self.arms, **given)
        plan = plan_job(spec, {p.workload: workload(p.workload, n=200, n_warmup=8) for p in spec.points})
        found = analyse_job(spec, plan, self._attempts(spec, plan), list(self.failures), self.facts)
        here = [c for c in found.comparisons if c.point == spec.points[self.point].key]
        return next(c for c in here if c.arm == self.arm)

    def _attempts(self, spec: ExperimentSpec, plan: JobPlan) -> list[AttemptMeasurement]:
        made = attempts(spec, plan, self.speeds or TWICE, noise=self.noise, without=self.without, change=self.change)
        return [a.model_copy(update=self.edit(a)) if self.edit else a for a in made]


def oom(*blocks: int) -> tuple[TrialFailure, ...]:
    said = "the engine needs 9,120 MiB and the device has 8,192 MiB"
    return tuple(
        TrialFailure(trial=f"b{b}-draft-4", arm="draft-4", block=b, code="engine_out_of_memory", message=said, oom=True) for b in blocks
    )


def died(arm: str, *blocks: int, code: str = "engine_exited_at_start") -> tuple[TrialFailure, ...]:
    said = "the engine ended with code 1: unknown model architecture"
    return tuple(TrialFailure(trial=f"b{b}-{arm}", arm=arm, block=b, code=code, message=said) for b in blocks)


def trials(arm: str, *blocks: int) -> tuple[str, ...]:
    return tuple(f"b{b}-{arm}" for b in blocks)


def of_arm(arm: str, **changed: Any) -> Edit:
    return lambda a: changed if a.arm == arm else {}


def key(**changed: str) -> Edit:
    return lambda a: {"pair_fields": a.pair_fields | changed} if a.arm != "off" else {}


def host(arm: str, **facts: Any) -> Edit:
    """What samples tell: of the named arm as given, of the other one a quiet GPU."""
    quiet: dict[str, Any] = {"device": "gpu", "n_samples": 9, "throttle": {}, "others_busy_percent": 0.0, "clock_mhz": 1500.0}
    return lambda a: {"host": HostFacts(**(quiet | (facts if a.arm == arm else {})))}


def placed(baseline: int, arm: int) -> Edit:
    """Layers on the card, of 33, where as many were asked for as there are."""
    quiet: dict[str, Any] = {"device": "gpu", "n_samples": 9, "throttle": {}, "others_busy_percent": 0.0}
    return lambda a: {"host": HostFacts(**quiet, layers_asked=99, layers_placed=(baseline if a.arm == "off" else arm, 33))}


def probes(arm: str, last: str = "", **changed: Any) -> Change:
    """In probes of the arm whose id ends so."""
    return lambda t, p: changed if t.arm == arm and p.id.endswith(last) else {}


def failing(**by_arm: str) -> Change:
    """Probes as ``block#number`` of each arm end without an answer."""
    broken = {"ok": False, "failure": "probe_failed", "failure_message": "the server answered with status 500"}

    def change(t: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        wanted = by_arm.get(t.arm.replace("-", "_"), "").split()
        return broken if f"{t.block}#{p.id.rsplit('#')[1]}" in wanted else {}

    return change


def lengths(tokens: int) -> Change:
    return probes("draft-4", completion_tokens=number(tokens), server_tokens=number(tokens))


def loads(arm: str, in_flight: float, rate: float = 100.0) -> Edit:
    """Four at once; the named arm had so many requests in flight, and the arm with speculation twice the rate."""
    points = {"count/c4/ctx0/t0"}

    def edit(a: AttemptMeasurement) -> dict[str, Any]:
        observed = in_flight if a.arm == arm else 3.99
        speed = rate * (1 + 0.001 * a.block) * (2 if a.arm != "off" else 1)
        found = [
            LoadMeasurement(
                point=p, concurrency=4, n_requests=24, window_s=(0, 9), tokens_per_s=number(speed), observed_concurrency=number(observed)
            )
            for p in points
        ]
        return {"loads": found}

    return edit


FOUR = {"points": [{"workload": "count", "probes": 24}, {"workload": "count", "concurrency": 4}], "engine": {"slots": 4}, "blocks": 3}


BY_THE_CLOCK = {"points": [{"workload": "count", "probes": 24, "rate_per_s": 2}], "engine": {"slots": 4}, "blocks": 3}


def behind(*blocks: int) -> Edit:
    """Trials of the arm in which requests came by the clock faster than they were answered."""

    def edit(a: AttemptMeasurement) -> dict[str, Any]:
        late = "the last third waited 4.1 s on average, the first 0.2 s" if a.arm != "off" and a.block in blocks else ""
        load = LoadMeasurement(
            point="count/c1/ctx0/t0/r2",
            concurrency=1,
            n_requests=24,
            window_s=(0, 12),
            tokens_per_s=number(100.0),
            observed_concurrency=number(1.4),
            rate_per_s=2,
            observed_rate_per_s=number(2.0),
            overloaded=late,
        )
        return {"loads": [load]}

    return edit


def right(t: TrialPlan, p: ProbePlan) -> bool:
    return not ("/c4/" in p.point and int(p.id.rsplit("#")[1]) % 2)


def scatter(size: float) -> Callable[[TrialPlan, ProbePlan], float]:
    """Noise of a trial: what one start is faster or slower by than the next."""
    steps = (0.9, -0.7, 0.4, -1.0, 0.6)
    return lambda t, p: 1 + (size * steps[t.block % 5] if t.arm != "off" else 0)


def by_length(t: TrialPlan, p: ProbePlan) -> float:
    """Short prompts gain threefold, the one long prompt of a block loses."""
    long = p.id.endswith("#1")
    return (40.0 if long else 1.0) * (3.2 if long and t.arm != "off" else 1.0) * wobble(t, p)


ROADS = [
    Road("all starts out of memory", "disable", "does not fit", without=trials("draft-4", 1, 2, 3, 4, 5), failures=oom(1, 2, 3, 4, 5)),
    Road("two starts of five out of memory", "disable", "does not fit", without=trials("draft-4", 2, 4), failures=oom(2, 4)),
    Road("layers pushed off the card", "disable", "does not fit", edit=placed(33, 21)),
    Road("another build", "invalid", "same comparison key", edit=key(runtime_hash="ab" * 32)),
    Road("another context", "invalid", "same comparison key", edit=key(command='["--ctx-size", "8192"]')),
    Road(
        "a byte changed",
        "invalid",
        "evidence hashes",
        facts=JobFacts(hashes_verified=False, n_hashes=80, hash_problem="1 of 80 files differs from its hash: server.log of b1-off"),
    ),
    Road("several bytes changed", "invalid", "evidence hashes", facts=JobFacts(hashes_verified=False, n_hashes=80)),
    Road("a token too many", "invalid", "counts agree", change=probes("draft-4", "#1", server_tokens=number(65))),
    Road(
        "requests together don't add up",
        "invalid",
        "counts agree",
        edit=of_arm("off", disagreements=["tokens: 1536 by the stream, 1530 by /metrics"]),
    ),
    Road("one prompt cached", "invalid", "no cache hits", change=probes("off", "#2", cache_hit_tokens=number(12))),
    Road("all prompts cached", "invalid", "no cache hits", change=probes("draft-4", cache_hit_tokens=number(20))),
    Road("one arm alone fails", "invalid", "probe failures", change=failing(draft_4="1#1")),
    Road("both arms fail elsewhere", "invalid", "probe failures", change=failing(off="1#1", draft_4="2#1"), spec={"blocks": 3}),
    Road("the client read late", "invalid", "client lag", edit=lambda a: {"n_late_events": 9 if a.block == 1 else 1}),
    Road("a client late in every trial", "invalid", "client lag", edit=lambda a: {"n_late_events": 2}),
    Road("answers twice as long", "invalid", "output lengths", change=lengths(128)),
    Road("answers cut short", "invalid", "output lengths", change=lengths(20)),
    Road("a helper that is never right", "invalid", "drafter alive", change=probes("draft-4", counters=DEAD)),
    Road(
        "a head that is never right",
        "invalid",
        "drafter alive",
        arms=({"name": "mtp", "mode": "mtp", "draft_limit": 4},),
        arm="mtp",
        speeds={"off": 1.0, "mtp": 0.7},
        change=probes("mtp", counters=DEAD),
    ),
    Road("too hot", "invalid", "throttling", edit=host("draft-4", throttle={"hw_thermal_slowdown": 4})),
    Road("held down in the baseline", "invalid", "throttling", edit=host("off", throttle={"sw_thermal_slowdown": 2})),
    Road("a neighbour", "invalid", "another process on the device", edit=host("draft-4", others_busy_percent=31.0, other_pids=[4242])),
    Road("a neighbour nobody knows", "invalid", "another process on the device", edit=host("off", others_busy_percent=8.5)),
    Road("spilled", "invalid", "memory placed as asked", edit=host("off", loaded_bytes=9e9, held_bytes=7e9)),
    Road("layers left out", "invalid", "memory placed as asked", edit=host("off", layers_asked=99, layers_placed=(20, 33))),
    Road("the arm was not kept busy", "invalid", "observed concurrency", edit=loads("draft-4", 2.5), spec=FOUR, point=1),
    Road("the baseline was not kept busy", "invalid", "observed concurrency", edit=loads("off", 3.7), spec=FOUR, point=1),
    Road(
        "wrong as soon as several ask",
        "invalid",
        "answers right under load",
        edit=loads("", 0),
        change=lambda t, p: {"check_passed": right(t, p)},
        spec=FOUR,
        point=1,
    ),
    Road(
        "every answer wrong under load",
        "invalid",
        "answers right under load",
        edit=loads("", 0),
        change=lambda t, p: {"check_passed": "/c4/" not in p.point},
        spec=FOUR,
        point=1,
    ),
    Road(
        "an arm that never starts",
        "invalid",
        "engine_exited_at_start",
        without=trials("draft-4", 1, 2, 3, 4, 5),
        failures=died("draft-4", 1, 2),
    ),
    Road(
        "a baseline that never starts",
        "invalid",
        "engine_exited_at_start",
        without=trials("off", 1, 2, 3, 4, 5),
        failures=died("off", 1, 2, 3),
    ),
    Road(
        "a build that ignores it",
        "not engaged",
        "not engaged",
        edit=of_arm("draft-4", engaged=False, engaged_why="the server reports speculation none, asked for was draft-simple"),
    ),
    Road("a helper that drafts nothing", "not engaged", "not engaged", change=probes("draft-4", counters=IDLE)),
    Road(
        "context lost to the helper",
        "disable",
        "context",
        edit=of_arm("draft-4", context_per_slot=3840),
        spec={"requirements": {"context": 4096}},
    ),
    Road(
        "context lost, and a shorter limit holds it",
        "disable",
        "context",
        arms=(draft(2), draft(4)),
        speeds=TWICE | {"draft-2": 1.5},
        edit=of_arm("draft-4", context_per_slot=3840),
        spec={"requirements": {"context": 4096}},
    ),
    Road(
        "a slot lost",
        "disable",
        "concurrency",
        edit=of_arm("draft-4", slots=1),
        spec={"requirements": {"slots": 2}, "engine": {"slots": 2}},
    ),
    Road(
        "slots that nobody has",
        "disable",
        "concurrency",
        edit=lambda a: {"slots": 3},
        spec={"requirements": {"slots": 4}, "engine": {"slots": 4}},
    ),
    Road(
        "no memory left for others",
        "disable",
        "memory",
        edit=host("draft-4", free_bytes=200 * 2**20),
        spec={"requirements": {"free_memory_mib": 1024}},
    ),
    Road(
        "little memory left in one trial",
        "disable",
        "memory",
        edit=lambda a: {"host": HostFacts(free_bytes=(900 if a.trial == "b3-draft-4" else 4000) * 2.0**20)},
        spec={"requirements": {"free_memory_mib": 1024}},
    ),
    Road(
        "wrong answers here and there",
        "disable",
        "quality",
        change=lambda t, p: {"check_passed": t.arm == "off" or not p.id.endswith(("1", "3"))},
    ),
    Road("all answers wrong", "disable", "quality", change=lambda t, p: {"check_passed": t.arm == "off"}),
    Road(
        "all answers right, and too few to show it",
        "inconclusive",
        "quality not shown",
        change=lambda t, p: {"check_passed": True},
        spec={"requirements": {"quality": "held"}},
    ),
    Road("nothing was checked", "inconclusive", "quality not shown", spec={"requirements": {"quality": "held"}}),
    Road("half as long is faster", "shorten", "shorter limit is better", arms=(draft(2), draft(4)), speeds=TWICE | {"draft-2": 2.6}),
    Road(
        "only the shorter one pays",
        "shorten",
        "shorter limit is better",
        arms=(draft(2), draft(4)),
        speeds={"off": 1.0, "draft-4": 0.8, "draft-2": 1.3},
    ),
    Road("twice as fast", "keep", "faster"),
    Road(
        "lookups pay though they are rare",
        "keep",
        "faster",
        arms=(NGRAM,),
        arm="ngram",
        speeds={"off": 1.0, "ngram": 1.1},
        facts=JobFacts(noise_floor=0.05, hashes_verified=True, n_hashes=80),
    ),
    Road("a slow helper", "disable", "slower", speeds={"off": 1.0, "draft-4": 0.8}),
    Road(
        "lookups that find nothing",
        "disable",
        "slower",
        arms=(NGRAM,),
        arm="ngram",
        speeds={"off": 1.0, "ngram": 0.93},
        change=probes("ngram", counters=IDLE),
    ),
    Road("no gain", "disable", "not worth it", speeds={"off": 1.0, "draft-4": 1.0}),
    Road("the baseline once more", "disable", "not worth it", arms=(CONTROL,), arm="off-again", speeds={"off": 1.0, "off-again": 1.0}),
    Road("two blocks planned", "inconclusive", "too few blocks", spec={"blocks": 2}),
    Road(
        "one block of three lost",
        "inconclusive",
        "too few blocks",
        spec={"blocks": 3},
        without=trials("draft-4", 2),
        failures=died("draft-4", 2, code="engine_died"),
    ),
    Road("noise that more blocks settle", "inconclusive", "noise-limited", speeds={"off": 1.0, "draft-4": 1.06}, noise=scatter(0.04)),
    Road("noise beyond help", "inconclusive", "noise-limited", speeds={"off": 1.0, "draft-4": 1.02}, noise=scatter(0.6)),
    Road(
        "a floor over the margin",
        "inconclusive",
        "floor-limited",
        speeds={"off": 1.0, "draft-4": 1.02},
        facts=JobFacts(noise_floor=0.06, hashes_verified=True, n_hashes=80),
    ),
    Road(
        "a host that differs from itself",
        "inconclusive",
        "floor-limited",
        arms=(CONTROL,),
        arm="off-again",
        speeds={"off": 1.0, "off-again": 1.1},
    ),
    Road(
        "off with what speculation implies, and slower by it",
        "inconclusive",
        "explains only",
        arms=(draft(), IMPLIED),
        arm="off-implied",
        speeds={"off": 1.0, "draft-4": 1.5, "off-implied": 0.8},
    ),
    Road(
        "off with what speculation implies, and as fast",
        "inconclusive",
        "explains only",
        arms=(draft(), IMPLIED),
        arm="off-implied",
        speeds={"off": 1.0, "draft-4": 1.5, "off-implied": 1.0},
    ),
    Road("short prompts gain, long ones lose", "inconclusive", "prompts disagree", speeds={"off": 1.0, "draft-4": 3.0}, noise=by_length),
    Road(
        "together faster, one by one slower",
        "inconclusive",
        "prompts disagree",
        speeds={"off": 1.0, "draft-4": 0.9},
        edit=loads("", 0),
        spec=FOUR,
        point=1,
    ),
    Road("requests faster than answers", "inconclusive", "overloaded", edit=behind(1, 2, 3), spec=BY_THE_CLOCK),
    Road("one start that fell behind", "inconclusive", "overloaded", edit=behind(2), spec=BY_THE_CLOCK),
    Road(
        "a context that nobody reports",
        "inconclusive",
        "requirement not checked",
        edit=of_arm("draft-4", context_per_slot=None),
        spec={"requirements": {"context": 4096}},
    ),
    Road(
        "slots that nobody reports",
        "inconclusive",
        "requirement not checked",
        edit=lambda a: {"slots": None},
        spec={"requirements": {"slots": 2}, "engine": {"slots": 2}},
    ),
]


@pytest.fixture(scope="module")
def ended() -> dict[str, Verdict]:
    return {road.name: road.compared().verdict for road in ROADS}


@pytest.mark.parametrize("road", ROADS, ids=lambda r: r.name)
def test_a_road_ends_in_its_verdict(road: Road, ended: dict[str, Verdict]) -> None:
    found = ended[road.name]
    assert (found.word, found.reason) == (road.word, road.reason), found.sentence


@pytest.mark.parametrize("road", ROADS, ids=lambda r: r.name)
def test_a_verdict_is_read_without_the_documentation(road: Road, ended: dict[str, Verdict]) -> None:
    found = ended[road.name]
    for words in (found.sentence, found.next_step):
        assert not re.search(r"[a-z]_[a-z]", words), words  # codes and names of fields
        assert not re.search(r"[0-9a-f]{13,}", words), words  # ids and whole hashes
        assert not re.search(r"None|nan|\{|\}|\binf\b", words), words
        assert not words.endswith("."), words  # pages put sentences together
    assert re.search(r"\d", found.sentence), found.sentence
    assert 15 < len(found.sentence) < 260, found.sentence
    final = found.word == "keep" or found.reason in ("slower", "not worth it")
    assert bool(found.next_step) != final
    assert len(found.next_step) < 170, found.next_step


def test_every_reason_that_can_be_given_is_reached_twice() -> None:
    reached = Counter((r.word, r.reason) for r in ROADS)
    assert [pair for pair, n in reached.items() if n < 2] == []
    reasons = {reason for _, reason in reached}
    assert reasons_in(Path(verdict.__file__)) - reasons == set()
    assert {r.word for r in ROADS} == {"keep", "shorten", "disable", "inconclusive", "invalid", "not engaged"}


def reasons_in(source: Path) -> set[str]:
    """Reasons that stand in the code: as an argument, an assignment or the second member of a decision."""
    places: list[ast.AST] = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "reason":
            places.append(node.value)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "reason":
            places.append(node.value)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "decided" and isinstance(node.value, ast.Tuple):
            places.append(node.value.elts[1])
    found: set[str] = set()
    for place in (p for top in places for p in ast.walk(top)):
        if isinstance(place, ast.Constant) and isinstance(place.value, str):
            found.add(place.value)
        if isinstance(place, ast.Name) and isinstance(value := getattr(verdict, place.id, None), str):
            found.add(value)
    return found


def test_the_reader_of_reasons_sees_them() -> None:
    seen = reasons_in(Path(verdict.__file__))
    assert {"faster", "slower", "not worth it", "noise-limited", "does not fit", "quality", "overloaded"} <= seen


def test_every_hard_check_has_a_next_step_and_every_next_step_a_check() -> None:
    """A check that can make a comparison invalid tells what to do about it in words of its own; the panel's table names them all."""
    panel = MEASUREMENT.read_text().partition("## The integrity panel")[2].partition("\n## ")[0]
    hard = {name for name, kind in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", panel, re.MULTILINE) if kind.startswith("hard")}
    assert len(hard) >= 14
    assert set(next_steps.AFTER_CHECK) == hard
    invalid = {r.reason for r in ROADS if r.word == "invalid" and "_" not in r.reason}
    assert invalid <= hard


def test_the_remedy_of_an_error_is_the_next_step_after_it() -> None:
    assert (
        next_steps.next_step("invalid", "engine_exited_at_start")
        == "the reason stands in the server log; correct the setting that it names"
    )
    assert next_steps.next_step("invalid", "port_unavailable").startswith("another program took the port")
    assert next_steps.next_step("invalid", "never heard of") == "mend what the sentence names, and run it again"


def test_the_roads_of_the_made_up_helper_are_whole() -> None:
    """The attempts that roads are made of have all that a verdict looks at."""
    assert DRAFT.drafted.value == 84  # type: ignore[union-attr]
    assert ROADS[-1].compared().block_values
