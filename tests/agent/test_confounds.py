"""Each integrity check, broken once by a run: what the panel says then, and what becomes of the verdict.

Runs are real ones on llama-server where that can be made to show the fault, else on the replayed engine through the real
agent; a fault that no engine of this machine can have (a hot card, another build) is put into sensors or evidence.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from specagent import local
from specagent.gpus import Gpus
from specagent.inventory import Host
from speccore import compare, records
from speccore.measurement import Check, ComparisonResult, JobAnalysis
from speccore.protocol import Running
from speccore.workload import Check as AnswerCheck
from speccore.workload import Item, Workload

from tests.agent.conftest import Ran, make_spec
from tests.agent.fake_nvml import FakeNvml
from tests.agent.replayed import Replay, panel
from tests.core import made
from tests.replay.engine import Side, trial_noise

REPO = Path(__file__).resolve().parents[2]
ENGINE: dict[str, Any] = {"context": 512, "start_timeout_s": 30, "probe_timeout_s": 20}

#: Check → the test that breaks it, here or in another file.
BROKEN_BY = {
    "same comparison key": "test_two_builds_in_a_block_are_no_pair",
    "evidence hashes": "test_a_byte_changed_in_stored_evidence_is_found",
    "counts agree": "test_an_engine_that_counts_a_token_less_than_it_sent",
    "no cache hits": "test_a_prefix_cache_that_hits_on_the_real_engine",
    "probe failures": "test_an_arm_whose_answers_fail",
    "client lag": "test_a_client_that_reads_late",
    "output lengths": "test_an_arm_that_answers_in_half_the_tokens",
    "drafter alive": "test_a_helper_whose_first_token_is_never_right",
    "throttling": "test_a_card_that_is_held_down_by_heat",
    "another process on the device": "test_a_neighbour_that_burns_the_engines_cores",
    "memory placed as asked": "test_layers_that_did_not_go_where_they_were_asked",
    "clock spread": "test_a_card_whose_clock_differs_between_trials",
    "observed concurrency": "test_a_client_that_can_not_keep_four_requests_under_way",
    "answers right under load": "test_answers_that_are_wrong_as_soon_as_two_ask",
    "baseline agrees with itself": "test_a_baseline_that_never_answers_alike",
    "context occupied": "test_an_engine_whose_context_is_not_as_full_as_asked_for",
    "engine keeps up": "test_an_engine_that_falls_behind_the_clock",
    "sampling rule": "test_an_arm_that_samples_the_likeliest_token_too_often",
    "drift": "test_a_host_that_slows_down_inside_each_block",
    "order balance": "test_blocks_that_were_lost_leave_the_order_unbalanced",
    "warm-up settled": "test_a_warm_up_that_never_settles",
    "distinct prompts": "test_three_prompts_speak_for_themselves_only",
    "greedy answers": "test_an_arm_whose_tokens_are_not_the_targets",
    "task checks": "test_an_arm_that_answers_wrongly",
    "failed trials": "test_an_engine_that_died_once",
    "evidence whole": "test_evidence_that_lacks_a_file",
    "restarted": "tests/agent/test_attached.py::test_its_comparison_says_that_nothing_was_restarted_and_what_nobody_could_check",
    "Holm": "tests/core/test_integrity.py::test_holm_warns_only_where_an_interval_claims_something",
    "A/A known": "tests/core/test_integrity.py::test_checks_of_the_job",
    "engine has its cores": "tests/core/test_compare.py::test_checks_that_could_not_run_are_not_called_passed",
}


def state(check: Check) -> tuple[str, str]:
    return check.kind, check.state


def invalid_by(name: str, found: ComparisonResult, checks: dict[str, Check]) -> None:
    """The hard check failed, and the verdict is invalid for it."""
    assert state(checks[name]) == ("hard", "failed"), checks[name].sentence
    assert (found.verdict.word, found.verdict.reason, found.verdict.sentence) == ("invalid", name, checks[name].sentence)
    assert found.verdict.next_step


def warned(name: str, found: ComparisonResult, checks: dict[str, Check]) -> None:
    """The soft check failed, which is shown and does not decide."""
    assert state(checks[name]) == ("soft", "failed"), checks[name].sentence
    assert found.verdict.reason != name


def test_each_check_has_a_run_that_breaks_it() -> None:
    """Also those of a later module: what an analysis with everything in it shows, and what modules of checks name."""
    named = {n for f in (REPO / "agent/speccore").glob("*.py") for n in names_of_checks(f)}
    assert named | shown_by_an_analysis() == set(BROKEN_BY)
    for name, test in BROKEN_BY.items():
        file, _, function = test.rpartition("::")
        source = (REPO / file if file else Path(__file__)).read_text()
        assert f"def {function}(" in source, f"{name}: {test}"


def names_of_checks(file: Path) -> set[str]:
    """Of a module: the first argument of what makes a check, be it a text, a constant of the module, or the function's ``name``."""
    found: set[str] = set()
    for function in (f for f in ast.walk(ast.parse(file.read_text())) if isinstance(f, ast.FunctionDef)):
        nodes = list(ast.walk(function))
        own = [n.value for n in nodes if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "name"]
        for call in (n for n in nodes if isinstance(n, ast.Call) and n.args):
            if function.name in MAKERS or not any(isinstance(n, ast.Name) and n.id in MAKERS for n in ast.walk(call.func)):
                continue
            first = call.args[0]
            if isinstance(first, ast.Name) and first.id != "name":
                found.add(getattr(importlib.import_module(f"speccore.{file.stem}"), first.id, ""))
            else:
                found |= {str(n.value) for n in (own if isinstance(first, ast.Name) else [first]) if isinstance(n, ast.Constant)}
    return found - {""}


MAKERS = ("passed", "failed", "not_checked")


def shown_by_an_analysis() -> set[str]:
    points = [{"workload": "count", "probes": 2}, {"workload": "count", "concurrency": 4}]
    spec = made.spec_of(points=points, engine={"slots": 4}, blocks=3)
    plan = made.planned(spec, count=made.workload(n=200, n_warmup=8))
    found = compare.analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}), [], compare.JobFacts())
    return {c.name for c in [*found.checks, *(c for one in found.comparisons for c in one.checks)]}


# --- runs on the replayed engine ---


@pytest.fixture
def replay(host: Host, workload: Workload, tmp_path: Path) -> Callable[..., Replay]:
    def run(name: str = "run", *, on: Host | None = None, work: Workload | None = None, **more: Any) -> Replay:
        return Replay(on or host, work or workload, tmp_path / name, **more)

    return run


def test_a_run_without_a_fault_passes_what_the_others_fail(replay: Callable[..., Replay]) -> None:
    """Else the tests below would show nothing."""
    found, checks = panel(replay(sides={"3": Side(speed=2.0)}, spec={"points": [point(probes=3)], "blocks": 3}).analysis())
    machine = {"client lag", "another process on the device"}  # of whatever else runs beside the tests
    assert [c.sentence for c in checks.values() if c.kind == "hard" and c.state == "failed" and c.name not in machine] == []
    passed = {name for name, c in checks.items() if c.state == "passed"}
    wanted = {
        "same comparison key",
        "evidence hashes",
        "counts agree",
        "no cache hits",
        "probe failures",
        "output lengths",
        "drafter alive",
    }
    assert wanted | {"baseline agrees with itself", "order balance", "distinct prompts", "failed trials", "evidence whole"} <= passed
    assert found.verdict.word in {"keep", "invalid"}


def point(**more: Any) -> dict[str, Any]:
    return {"workload": "numbers", "max_tokens": 16, "probes": 2} | more


def test_speculation_that_a_build_ignores(replay: Callable[..., Replay]) -> None:
    found, _ = panel(replay(sides={"3": Side(drafts=False)}).analysis())
    assert found.verdict.word == "not engaged"
    assert "in 1 of 1 trials (the server reports speculation none, asked for was draft-simple)" in found.verdict.sentence


def test_two_builds_in_a_block_are_no_pair(replay: Callable[..., Replay]) -> None:
    """The same plan on two builds, and on two contexts: the arm's trials of the one beside the baseline's of the other."""
    ours = replay("ours").files()
    for name, more, said in (
        ("build", {"build": "e"}, "engine build: ffffffffffff in "),
        ("context", {"spec": {"engine": ENGINE | {"context": 768}}}, "--ctx-size 512 in "),
    ):
        other = replay(name, **more)
        mixed = {trial: (ours if trial.endswith("off") else other.files())[trial] for trial in ours}
        found, checks = panel(other.measured_again(mixed))
        invalid_by("same comparison key", found, checks)
        assert said in checks["same comparison key"].sentence


def test_a_build_that_is_replaced_while_the_job_runs(replay: Callable[..., Replay], tmp_path: Path) -> None:
    """As an upgrade would: what is started afterwards is another program."""
    program = tmp_path / "engine" / "replayed-llama-server"

    def heard(running: Running) -> None:
        if running.phase == "stopping":
            program.write_text(f"{program.read_text()}# another one\n")

    found, _ = panel(replay(heard=heard, spec={"blocks": 3}).analysis())
    assert (found.verdict.word, found.verdict.reason) == ("invalid", "build_changed")
    assert "of the engine build is another one than was advertised" in found.verdict.sentence
    assert found.verdict.next_step.startswith("put the build back")


def test_another_context_than_asked_for_is_no_result(replay: Callable[..., Replay], host: Host) -> None:
    """An engine that gives more context than asked for is found before it is timed."""
    run = replay(sides={"3": Side(context=4096)})
    found, _ = panel(run.analysis())
    assert (found.verdict.word, found.verdict.reason) == ("invalid", "engine_loaded_other")
    assert "4096 tokens of context to a slot, asked for were 512" in found.verdict.sentence


def test_a_byte_changed_in_stored_evidence_is_found(replay: Callable[..., Replay]) -> None:
    run = replay()
    found, checks = panel(run.analysis())
    assert state(checks["evidence hashes"]) == ("hard", "passed")
    file = run.folder("b1-off") / records.RECORDS
    data = bytearray(file.read_bytes())
    data[data.index(b'"at_s"') + 8] ^= 1  # a digit of an arrival
    file.write_bytes(data)
    found, checks = panel(run.analysis())
    invalid_by("evidence hashes", found, checks)
    assert found.verdict.sentence == "changed since they were measured: records.jsonl of b1-off"


def test_an_engine_that_counts_a_token_less_than_it_sent(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(sides={"0": Side(miscounted=-1)}).analysis())
    invalid_by("counts agree", found, checks)
    assert "16" in checks["counts agree"].sentence
    assert "15" in checks["counts agree"].sentence


def test_an_arm_whose_answers_fail(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(sides={"3": Side(broken=(2,))}).analysis())
    invalid_by("probe failures", found, checks)
    assert checks["probe failures"].sentence == "1 probe of 2 failed in the arm (50 %, and none in the other)"


def test_an_arm_that_answers_in_half_the_tokens(replay: Callable[..., Replay]) -> None:
    """Not faster, only shorter."""
    found, checks = panel(replay(sides={"3": Side(tokens=7)}).analysis())
    invalid_by("output lengths", found, checks)
    assert "16.0 tokens on average in the baseline and 7.0 in the arm (56 % apart)" in checks["output lengths"].sentence


def test_a_helper_whose_first_token_is_never_right(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(sides={"3": Side(accepted=0)}).analysis())
    invalid_by("drafter alive", found, checks)


class BusyClient:
    """Threads of this very process that hand the interpreter over every 20 ms only: who reads a stream meanwhile is late.

    They work while a trial is timed, as its phases tell.
    """

    def __init__(self) -> None:
        self.over, self.timed = threading.Event(), threading.Event()

    def heard(self, running: Running) -> None:
        (self.timed.set if running.phase == "probing" else self.timed.clear)()

    def burn(self) -> None:
        while not self.over.is_set():
            if not self.timed.is_set():
                self.timed.wait(0.01)

    @contextmanager
    def at_work(self) -> Iterator[BusyClient]:
        before, threads = sys.getswitchinterval(), [threading.Thread(target=self.burn) for _ in range(2)]
        sys.setswitchinterval(0.02)
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.over.set()
            sys.setswitchinterval(before)
            for thread in threads:
                thread.join()


def test_a_client_that_reads_late(replay: Callable[..., Replay]) -> None:
    with BusyClient().at_work() as client:
        run = replay(heard=client.heard, token_ms=1.0, spec={"points": [point(max_tokens=400, probes=1)]})
    found, checks = panel(run.analysis())
    invalid_by("client lag", found, checks)
    assert "so late that their arrival is only a bound" in checks["client lag"].sentence


GPU_LOG = """load_tensors: offloaded {layers}/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  2000.00 MiB
"""


def on_a_card(host: Host, card: dict[str, Any]) -> tuple[Host, FakeNvml]:
    """The host with a made-up card, which a test may change while the job runs."""
    nvml = FakeNvml(card)
    return replace(host, gpus=Gpus(nvml, drm=Path("/nowhere"))), nvml


def card_run(
    replay: Callable[..., Replay], host: Host, in_the_arm: dict[str, Any], **more: Any
) -> tuple[ComparisonResult, dict[str, Check]]:
    """A run on a card that answers so while the arm with speculation is on."""
    there, nvml = on_a_card(host, {"nvmlDeviceGetCurrentClocksEventReasons": 0})
    usual = dict(nvml.cards[0])

    def heard(running: Running) -> None:
        nvml.cards[0] = usual | (in_the_arm if (running.trial or "").endswith("draft-3") else {})

    sides = {"0": Side(log=GPU_LOG.format(layers=33)), "3": Side(log=GPU_LOG.format(layers=33))}
    return panel(replay(on=there, sides=sides, heard=heard, **more).analysis())


def test_a_card_that_is_held_down_by_heat(replay: Callable[..., Replay], host: Host) -> None:
    found, checks = card_run(replay, host, {"nvmlDeviceGetCurrentClocksEventReasons": 0x40})
    invalid_by("throttling", found, checks)
    assert "the clock was held down in 1 of 2 trials" in checks["throttling"].sentence


def test_a_card_whose_clock_differs_between_trials(replay: Callable[..., Replay], host: Host) -> None:
    found, checks = card_run(replay, host, {"nvmlDeviceGetClockInfo": {1: 1300, 2: 9500}})
    warned("clock spread", found, checks)
    assert "from 1,300 MHz" in checks["clock spread"].sentence
    assert "to 1,500 MHz" in checks["clock spread"].sentence


def test_layers_that_did_not_go_where_they_were_asked(replay: Callable[..., Replay], host: Host) -> None:
    there, _ = on_a_card(host, {"nvmlDeviceGetCurrentClocksEventReasons": 0})
    sides = {"0": Side(log=GPU_LOG.format(layers=20)), "3": Side(log=GPU_LOG.format(layers=20))}
    found, checks = panel(replay(on=there, sides=sides, spec={"engine": ENGINE | {"gpu_layers": 99}}).analysis())
    invalid_by("memory placed as asked", found, checks)
    assert "20 of 33 layers lie on devices, asked for were 99" in checks["memory placed as asked"].sentence


def test_a_client_that_can_not_keep_four_requests_under_way(replay: Callable[..., Replay]) -> None:
    """A client that is busy leaves a gap between an answer and the next request."""
    spec = {"points": [point(concurrency=4, probes=1, max_tokens=48)], "engine": ENGINE | {"slots": 4}}
    with BusyClient().at_work() as client:
        found, checks = panel(replay(heard=client.heard, token_ms=4.0, spec=spec, work=many()).analysis())
    name = "observed concurrency"
    assert state(checks[name]) == ("hard", "failed"), checks[name].sentence
    assert found.verdict.word == "invalid"
    assert checks[name].sentence.endswith("asked for were 4")


def many(*, checked: bool = False) -> Workload:
    """Prompts for several requests at once; the replayed engine counts from 1, whatever was asked."""
    right = AnswerCheck(kind="count", start=1) if checked else None
    items = [Item(id=f"n{a}", prompt=f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n") for a in range(10, 220)]
    return Workload(
        name="numbers", version=1, title="Numbers", items=[i.model_copy(update={"check": right}) for i in items[10:]], warmup=items[:10]
    )


def test_an_engine_whose_context_is_not_as_full_as_asked_for(replay: Callable[..., Replay]) -> None:
    """By its own count it reads 8 tokens, however long the prompt."""
    found, checks = panel(replay(spec={"points": [point(occupied_context=300)]}).analysis())
    invalid_by("context occupied", found, checks)


def test_an_engine_that_falls_behind_the_clock(replay: Callable[..., Replay]) -> None:
    """Sixteen answers a second at best, and forty requests: what they take says nothing of a request."""
    spec = {"points": [point(rate_per_s=40, probes=24)]}
    found, checks = panel(replay(one_by_one=True, token_ms=4.0, spec=spec, work=many()).analysis())
    warned("engine keeps up", found, checks)
    assert (found.verdict.word, found.verdict.reason) == ("inconclusive", "overloaded")


def test_answers_that_are_wrong_as_soon_as_two_ask(replay: Callable[..., Replay]) -> None:
    spec = {"points": [point(probes=8), point(concurrency=4, probes=1)], "engine": ENGINE | {"slots": 4}}
    found, checks = panel(replay(wrong_together=True, spec=spec, work=many(checked=True), token_ms=1.0).analysis(), point=1)
    name = "answers right under load"
    assert state(checks[name]) == ("hard", "failed"), checks[name].sentence
    assert found.verdict.word == "invalid"
    assert "with 4 requests at once and 100 % one at a time" in checks[name].sentence


def test_greedy_answers_that_are_others_as_soon_as_two_ask(replay: Callable[..., Replay]) -> None:
    """No check of the workload's and no point with one request at a time: a few are asked once more, one at a time."""
    spec = {"points": [point(concurrency=2, probes=1)], "engine": ENGINE | {"slots": 2}}
    found, checks = panel(replay(wrong_together=True, spec=spec, work=many(), token_ms=1.0).analysis())
    invalid_by("baseline agrees with itself", found, checks)
    assert "asked again, the baseline gives another answer to" in found.verdict.sentence
    assert checks["answers right under load"].not_checked


def test_greedy_answers_that_stay_the_same_when_two_ask(replay: Callable[..., Replay]) -> None:
    spec = {"points": [point(concurrency=2, probes=1)], "engine": ENGINE | {"slots": 2}}
    _, checks = panel(replay(spec=spec, work=many(), token_ms=1.0).analysis())
    assert state(checks["baseline agrees with itself"]) == ("hard", "passed")


def test_a_baseline_that_never_answers_alike(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(restless=True).analysis())
    invalid_by("baseline agrees with itself", found, checks)


def test_an_arm_whose_tokens_are_not_the_targets(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(sides={"3": Side(other_ids=True)}).analysis())
    warned("greedy answers", found, checks)


def test_an_arm_that_samples_the_likeliest_token_too_often(replay: Callable[..., Replay]) -> None:
    test = {"workload": "numbers", "continuations": 300, "positions": 2}
    warm = point(sampling={"temperature": 0.8})
    found, checks = panel(replay(sides={"3": Side(likeliest=0.9)}, spec={"points": [warm], "sampling_test": test}).analysis())
    warned("sampling rule", found, checks)


def test_an_arm_that_answers_wrongly(replay: Callable[..., Replay]) -> None:
    found, checks = panel(
        replay(sides={"3": Side(wrong=True)}, spec={"points": [point(probes=8)], "blocks": 3}, work=many(checked=True)).analysis()
    )
    assert state(checks["task checks"]) == ("soft", "failed"), checks["task checks"].sentence
    assert (found.verdict.word, found.verdict.reason) == ("disable", "quality")


def test_a_host_that_slows_down_inside_each_block(replay: Callable[..., Replay]) -> None:
    """Whoever is second is 15 % slower: a flagged drift, and the estimate at equal places in its stead."""
    noise = tuple(place * small for small, place in zip(trial_noise(16, 0.003), (1.0, 1.15) * 8))
    spec = {"blocks": 8, "points": [point(probes=1)]}
    found, checks = panel(replay(noise=noise, token_ms=6.0, sides={"3": Side(speed=1.5)}, spec=spec).analysis())
    warned("drift", found, checks)
    assert "the speed-up shown is the regression's at equal places" in checks["drift"].sentence
    assert found.speedup.method == "regression on position"  # type: ignore[union-attr]


def test_blocks_that_were_lost_leave_the_order_unbalanced(replay: Callable[..., Replay]) -> None:
    """Of four blocks those are left out in which the arm came first."""
    run = replay(spec={"blocks": 4})
    place = {(t.block, t.arm): t.position for t in run.ran.offer.plan.trials}
    first = {block for block in range(1, 5) if place[block, "draft-3"] < place[block, "off"]}
    left = {trial: f for trial, f in run.files().items() if int(trial[1:].split("-")[0]) not in first}
    found, checks = panel(run.measured_again(left))
    warned("order balance", found, checks)
    assert checks["order balance"].evidence == {"before": 0, "after": 2}


def test_a_warm_up_that_never_settles(replay: Callable[..., Replay]) -> None:
    spec = {"warmup": {"mode": "settled", "most": 6}, "points": [point(probes=1)]}
    found, checks = panel(replay(pace_by_request=0.8, token_ms=6.0, spec=spec, work=many()).analysis())
    warned("warm-up settled", found, checks)
    assert "2 of 2 starts" in checks["warm-up settled"].sentence


def test_three_prompts_speak_for_themselves_only(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(spec={"points": [point(probes=3)]}).analysis())
    warned("distinct prompts", found, checks)
    assert checks["distinct prompts"].sentence.startswith("these prompts only: 3 distinct ones")


def test_an_engine_that_died_once(replay: Callable[..., Replay]) -> None:
    found, checks = panel(replay(sides={"3": Side(dies_at=(1,))}, spec={"blocks": 3}).analysis())
    warned("failed trials", found, checks)
    assert found.verdict.reason == "too few blocks"


def test_evidence_that_lacks_a_file(replay: Callable[..., Replay]) -> None:
    run = replay()
    files = run.files()
    del files["b1-off"][records.SAMPLES]
    found, checks = panel(run.measured_again(files))
    warned("evidence whole", found, checks)
    assert checks["evidence whole"].sentence.endswith("first b1-off: samples.jsonl is missing")


# --- runs on the real engine ---


def real(host: Host, workload: Workload, folder: Path, **spec: Any) -> JobAnalysis:
    ran = Ran(host, make_spec(**spec), workload, folder)
    assert ran.run().outcome == "completed"
    return local.analyse(ran.offer, ran.workloads, ran.sink)


def test_a_prefix_cache_that_hits_on_the_real_engine(host: Host, workload: Workload, tmp_path: Path) -> None:
    """All prompts begin alike, and the cache is on."""
    alike = [i.model_copy(update={"prompt": f"These numbers go up by one, one after the other. {i.prompt}"}) for i in workload.items]
    engine = ENGINE | {"prefix_cache": True}
    found, checks = panel(real(host, workload.model_copy(update={"items": alike}), tmp_path / "out", engine=engine))
    invalid_by("no cache hits", found, checks)


def test_a_neighbour_that_burns_the_engines_cores(host: Host, workload: Workload, tmp_path: Path) -> None:
    """Two of them, so that no core is left alone. A CPU is never the engine's alone: the check is soft. Long enough for several looks at who computes."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        found, checks = panel(real(host, workload, tmp_path / "out", points=[point(max_tokens=300, probes=16)]))
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    warned("another process on the device", found, checks)
    assert "of the processors" in checks["another process on the device"].sentence
