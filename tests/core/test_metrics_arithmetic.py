"""Every metric with its arithmetic written out: one test for each, named after its id."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.derive import Pooled, cycle_numbers, positions_numbers, speculation_numbers, stream_numbers
from speccore.measure import equal_work_s, measure_attempt
from speccore.measurement import ComparisonResult, Counters, Interval, LoadMeasurement, Maybe, ProbeMeasurement, Withheld, value_of
from speccore.metrics import METRICS
from speccore.plan import plan_job
from speccore.records import StreamRecord
from speccore.stats import noise_floor
from speccore.times import probe_times
from speccore.workload import Item, Turn

from tests.core import made
from tests.core.recordings import LLAMA, evidence, spec_of
from tests.core.streams import cycling, stream_of

#: One token at 100 ms, then four together every 40 ms: 13 tokens in 4 chunks.
FOURS = stream_of([(100, 1), (140, 4), (180, 4), (220, 4)])
#: One token at 100 ms, then one every 20 ms, but the last after 60 ms.
ONES = stream_of([(100, 1), (120, 1), (140, 1), (160, 1), (180, 1), (240, 1)])
#: Drafted 4, 4, none, 4; accepted 2, 0, none, 4; with the prefill's token 11 are sent in 10 + 12 + 8 + 10 ms.
STEPS = cycling([(4, 2, 3, 10.0), (4, 0, 1, 12.0), (0, 0, 1, 8.0), (4, 4, 5, 10.0)])


def test_every_metric_has_its_arithmetic_in_a_test() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_metric*.py"))
    named = set(re.findall(r"def test_metric_(\w+)\(", tests))
    assert METRICS.keys() - named == set()


def close(m: Maybe, value: float) -> bool:
    got = value_of(m)
    return got is not None and math.isclose(got, value, rel_tol=1e-9)


def counted(record: StreamRecord = STEPS) -> Counters:
    counters: Counters = LLAMA.probe_counts(record, 1, off=False, metrics=None, log=None).counters
    return counters


def pool(*counters: Counters, arm: str = "draft-4", **more: Any) -> Pooled:
    """The probes of one arm with these counters."""
    spec = made.spec_of()
    trial = made.planned(spec).trials[0]
    return Pooled(arm, "p", [made.probe(trial.probes[0], 2.0, counters=c, **more) for c in counters], [1])


#: Two requests: 10 of 40 accepted in 10 steps that drafted, of 20; and 9 of 10 in 5, of 5.
TWO = (
    made.counters(
        drafted=40, accepted=10, verify_steps=10, decode_steps=20, emitted=30, eval_ms=800, draft_ms=300, accepted_by_position=[6, 3, 1, 0]
    ),
    made.counters(
        drafted=10, accepted=9, verify_steps=5, decode_steps=5, emitted=14, eval_ms=200, draft_ms=50, accepted_by_position=[5, 4]
    ),
)
PLAIN = made.counters(decode_steps=50, emitted=50, eval_ms=1000)


# --- times ---


def test_metric_ttft_any_s() -> None:
    assert close(probe_times(FOURS, 1).ttft_any_s, 0.100 - 0.0)


def test_metric_ttft_content_s() -> None:
    thinking = FOURS.model_copy(
        update={"events": [e.model_copy(update={"kind": "reasoning"}) if e.at_s < 0.18 else e for e in FOURS.events]}
    )
    assert close(probe_times(thinking, 1).ttft_content_s, 0.180 - 0.0)
    assert close(probe_times(thinking, 1).ttft_any_s, 0.100)


def test_metric_e2e_s() -> None:
    assert close(probe_times(FOURS, 1).e2e_s, 0.220 - 0.0)


def test_metric_decode_tokens_per_s() -> None:
    assert close(probe_times(FOURS, 1).decode_tokens_per_s, 12 / (0.220 - 0.100))  # 100 a second


def test_metric_equal_work_s() -> None:
    assert math.isclose(equal_work_s(0.100, 1, 100.0, 21), 0.100 + (21 - 1) / 100)


def test_metric_batch_ratio() -> None:
    assert close(probe_times(FOURS, 1).batch_ratio, 4 / 13)
    assert close(probe_times(ONES, 1).batch_ratio, 6 / 6)


def test_metric_chunk_gap_ms_p50() -> None:
    # gaps of ONES in ms: 20 20 20 20 60; nearest rank of one half of five is the third
    assert close(probe_times(ONES, 1).chunk_gap_ms_p50, 20.0)
    assert close(probe_times(FOURS, 1).chunk_gap_ms_p50, 40.0)


def test_metric_chunk_gap_ms_p95() -> None:
    # 0.95 · 5 = 4.75: the fifth
    assert close(probe_times(ONES, 1).chunk_gap_ms_p95, 60.0)


def test_metric_token_latency_ms() -> None:
    # four tokens every 40 ms are 10 ms each, though a reader waits 40 ms for the next chunk
    assert close(probe_times(FOURS, 1).token_latency_ms, (220 - 100) / 12)
    assert close(probe_times(ONES, 1).token_latency_ms, (240 - 100) / 5)


def test_metric_token_latency_ms_p50() -> None:
    # 9 tokens in 8 chunks, 0.89 for each: latencies 20 20 20 20 20 20 and two of 30 ÷ 2; the fourth of eight in order is 20
    pairs = stream_of([(100, 1), (120, 1), (140, 1), (160, 1), (180, 1), (200, 1), (220, 1), (250, 2)])
    assert close(probe_times(pairs, 1).token_latency_ms_p50, 20.0)


def test_metric_token_latency_ms_p95() -> None:
    assert close(probe_times(ONES, 1).token_latency_ms_p95, 60.0)
    assert value_of(probe_times(FOURS, 1).token_latency_ms_p95) is None  # 0.31 chunks for each token


def test_metric_peak_tokens_per_s() -> None:
    # 2.5 s after the first chunk are two parts of 1.25 s: ten tokens in the first, two in the second; the mean is 12 ÷ 2.5 = 4.8
    times = probe_times(stream_of([(100, 1), (600, 4), (1100, 6), (2600, 2)]), 1)
    assert close(times.peak_tokens_per_s, 10 / 1.25)
    assert close(times.decode_tokens_per_s, 12 / 2.5)


# --- counts ---


def test_metric_completion_tokens() -> None:
    counts = LLAMA.probe_counts(STEPS, 1, off=False, metrics=None, log=None)
    assert close(counts.completion_tokens, 1 + 3 + 1 + 1 + 5)
    assert [n.value for n in counts.completion_tokens.also] == [11, 11]


def test_metric_prompt_tokens() -> None:
    assert close(LLAMA.probe_counts(STEPS, 1, off=False, metrics=None, log=None).prompt_tokens, 8)


def test_metric_cache_hit_tokens() -> None:
    timings = {**STEPS.final["timings"], "cache_n": 5}
    hit = STEPS.model_copy(update={"final": {**STEPS.final, "timings": timings}})
    assert close(LLAMA.probe_counts(hit, 1, off=False, metrics=None, log=None).cache_hit_tokens, 5)


def test_metric_drafted() -> None:
    assert close(counted().drafted, 4 + 4 + 0 + 4)


def test_metric_accepted() -> None:
    assert close(counted().accepted, 2 + 0 + 0 + 4)


def test_metric_verify_steps() -> None:
    assert close(counted().verify_steps, 3)  # the third step had no draft


def test_metric_decode_steps() -> None:
    assert close(counted().decode_steps, 4)


def test_metric_committed() -> None:
    assert close(counted().committed, 6 + 4)  # accepted and one of the target's own for each step


def test_metric_emitted() -> None:
    assert close(counted().emitted, 11 - 1)


def test_metric_eval_ms() -> None:
    assert close(counted().eval_ms, 10 + 12 + 8 + 10)


def test_metric_draft_ms() -> None:
    log = LLAMA.log_requests(
        "prompt eval time = 1.00 ms / 8 tokens\n eval time = 40.00 ms / 11 tokens\n"
        "statistics draft-simple: #calls(b,g,a) = 1 3 3, #gen drafts = 3, #gen tokens = 12, dur(b,g,a) = 0.500, 9.000, 0.250 ms\n"
        "prompt eval time = 1.00 ms / 8 tokens\n eval time = 20.00 ms / 5 tokens\n"
        "statistics draft-simple: #calls(b,g,a) = 2 4 4, #gen drafts = 4, #gen tokens = 16, dur(b,g,a) = 0.500, 12.000, 0.350 ms\n"
    )
    # the line counts over the process: the second request's share is what it grew by
    assert [r.draft_ms for r in log] == [9.75, 3.1]
    assert [r.verify_steps for r in log] == [3, 1]


# --- speculation, pooled over probes ---


def test_metric_acceptance_rate() -> None:
    assert close(speculation_numbers(pool(*TWO))["acceptance_rate"], (10 + 9) / (40 + 10))


def test_metric_acceptance_rate_by_request() -> None:
    undrafted = made.counters(drafted=0, accepted=0)
    assert close(speculation_numbers(pool(*TWO, undrafted))["acceptance_rate_by_request"], (10 / 40 + 9 / 10) / 2)


def test_metric_mean_acceptance_length() -> None:
    assert close(speculation_numbers(pool(*TWO))["mean_acceptance_length"], 1 + (10 + 9) / (10 + 5))


def test_metric_tokens_per_target_pass() -> None:
    assert close(speculation_numbers(pool(*TWO))["tokens_per_target_pass"], (30 + 14) / (20 + 5))


def test_metric_drafted_per_cycle() -> None:
    assert close(speculation_numbers(pool(*TWO))["drafted_per_cycle"], (40 + 10) / (10 + 5))


def test_metric_accepted_by_position() -> None:
    survival = positions_numbers(pool(*TWO))["accepted_by_position"]
    assert survival == pytest.approx([(6 + 5) / 15, (3 + 4) / 15, 1 / 15, 0 / 15])


def test_metric_conditional_by_position() -> None:
    reached = positions_numbers(pool(*TWO))["conditional_by_position"]
    assert reached == pytest.approx([11 / 15, 7 / 11, 1 / 7, 0 / 1])


# --- cycles against the baseline ---


def test_metric_cycle_ms() -> None:
    assert close(cycle_numbers(pool(*TWO), pool(PLAIN, arm="off"))["cycle_ms"], (800 + 200) / (20 + 5))


def test_an_answer_of_one_token_has_no_step_and_leaves_the_engines_clock_to_the_others() -> None:
    short = made.counters(drafted=0, accepted=0, verify_steps=0, decode_steps=0, emitted=0).model_copy(
        update={"eval_ms": Withheld(withheld="one token is no time to measure", reason_code="one_arrival")}
    )
    numbers = cycle_numbers(pool(*TWO, short), pool(PLAIN, short, arm="off"))
    assert close(numbers["cycle_ms"], (800 + 200) / (20 + 5))
    assert close(numbers["plain_step_ms"], 1000 / 50)


def test_metric_plain_step_ms() -> None:
    assert close(cycle_numbers(pool(*TWO), pool(PLAIN, arm="off"))["plain_step_ms"], 1000 / 50)


def test_metric_break_even_tokens_per_pass() -> None:
    assert close(cycle_numbers(pool(*TWO), pool(PLAIN, arm="off"))["break_even_tokens_per_pass"], 40 / 20)


@pytest.mark.parametrize(("cycle_ms", "gain"), [(40, 2.0), (90, 8 / 9)])
def test_metric_decoding_gain(cycle_ms: float, gain: float) -> None:
    # four tokens in each of ten cycles, against plain steps of 20 ms
    arm = pool(made.counters(decode_steps=10, emitted=40, eval_ms=10 * cycle_ms))
    numbers = cycle_numbers(arm, pool(PLAIN, arm="off"))
    assert close(numbers["decoding_gain"], (40 / 10) / (cycle_ms / 20))
    assert close(numbers["decoding_gain"], gain)


def test_metric_draft_ms_per_cycle() -> None:
    assert close(cycle_numbers(pool(*TWO), pool(PLAIN, arm="off"))["draft_ms_per_cycle"], (300 + 50) / (20 + 5))


def test_metric_verify_ms_per_cycle() -> None:
    numbers = cycle_numbers(pool(*TWO), pool(PLAIN, arm="off"))
    assert close(numbers["verify_ms_per_cycle"], ((800 - 300) + (200 - 50)) / (20 + 5))
    assert close(numbers["cycle_ms"], 350 / 25 + 650 / 25)  # drafting and verifying make the cycle


def test_drafting_longer_than_decoding_is_no_number() -> None:
    wrong = made.counters(decode_steps=10, emitted=40, eval_ms=100, draft_ms=120)
    numbers = cycle_numbers(pool(wrong), pool(PLAIN, arm="off"))
    assert value_of(numbers["verify_ms_per_cycle"]) is None
    assert value_of(numbers["cycle_ms"]) == 10


def test_medians_of_streams_speak_only_for_most_probes() -> None:
    known, unknown = made.number(5.0), made.number(None)
    plans = made.planned(made.spec_of()).trials[0].probes
    probes: list[ProbeMeasurement] = [made.probe(plans[0], 2.0, token_latency_ms=m) for m in (known, known, unknown)]
    one, half = Pooled("a", "p", probes, [1]), Pooled("a", "p", probes[1:], [1])
    assert value_of(stream_numbers(one, one)["arm_token_latency_ms"]) == 5
    assert value_of(stream_numbers(half, half)["arm_token_latency_ms"]) is None


# --- comparisons and attempts ---


def compared(**more: Any) -> ComparisonResult:
    """Three blocks in which the arm is 2, 2 and 2.5 times as fast."""
    spec = made.spec_of(blocks=3)
    plan = made.planned(spec)
    slower = {1: 1.0, 2: 1.0, 3: 0.8}
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=lambda t, p: slower[t.block] if t.arm == "draft-4" else 1.0, **more)
    return analyse_job(spec, plan, ran, [], JobFacts()).comparisons[0]


def under_load(*, rates: Sequence[float] = (1, 1, 1, 1), observed: Sequence[float] = (2, 2, 2, 2)) -> ComparisonResult:
    """Four blocks with two requests at once: in each the same speed and requests in flight in both arms."""
    spec = made.spec_of(points=[{"workload": "count", "concurrency": 2}], engine={"slots": 2}, blocks=4)
    plan = made.planned(spec)

    def load(block: int) -> LoadMeasurement:
        return LoadMeasurement(
            point="count/c2/ctx0/t0",
            concurrency=2,
            n_requests=24,
            window_s=(0, 4),
            tokens_per_s=made.number(rates[block - 1]),
            observed_concurrency=made.number(observed[block - 1]),
        )

    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 1.0})
    return analyse_job(spec, plan, [a.model_copy(update={"loads": [load(a.block)]}) for a in ran], [], JobFacts()).comparisons[0]


def test_metric_speedup() -> None:
    speedup = compared().speedup
    assert isinstance(speedup, Interval)
    assert speedup.estimate == pytest.approx(math.exp((math.log(2) + math.log(2) + math.log(2.5)) / 3))


def test_metric_total_time() -> None:
    total = compared().total_time
    assert isinstance(total, Interval)
    # all prompts are equally long here, so the ratio of sums is the same in each block
    assert total.estimate == pytest.approx((2.0 * 2.0 * 2.5) ** (1 / 3))


def test_metric_loaded_tokens_per_s() -> None:
    # 8 tokens in 4 s of the baseline's first block; 12, 16 and 20 in the others, so 2, 3, 4 and 5 a second
    rates = [8 / 4, 12 / 4, 16 / 4, 20 / 4]
    assert close(under_load(rates=rates).arm_loaded_tokens_per_s, (2 + 3 + 4 + 5) / 4)


def test_metric_observed_concurrency() -> None:
    assert close(under_load(observed=[1.9, 2.0, 1.95, 1.99]).baseline_observed_concurrency, (1.9 + 2.0 + 1.95 + 1.99) / 4)


def of_tasks() -> ComparisonResult:
    """Three blocks of one task of two turns. Baseline: reading 0.5 + 0.7 s, 40 and 20 tokens at 10 a second; the arm decodes twice
    as fast and reads as slowly. Between the turns a tool takes 2 s, and 0.1 s pass beside it.

    The first token of each turn comes at its time to the first token, so decoding takes (39 + 19) ÷ 10 = 5.8 s.
    """
    turns = [Turn(prompt="first", answer="x"), Turn(prompt="second")]
    workload = made.workload().model_copy(update={"items": [Item(id="task", turns=turns)]})
    spec = made.spec_of(blocks=3, points=[{"workload": "count", "probes": 1}])
    plan = plan_job(spec, {"count": workload})
    ran = []
    for trial in plan.trials:
        rate = 20.0 if trial.arm == "draft-4" else 10.0
        attempt = made.attempt(trial, spec.arm(trial.arm).mode, lambda t, p: 1.0)
        (probe,) = attempt.probes
        passed = {"off": [True, True], "draft-4": [True, False]}[trial.arm]
        made_of = [(1, 0.5, 40, None, None), (2, 0.7, 20, 2.0, 0.1)]
        probes = [
            probe.model_copy(
                update={
                    "probe": f"{probe.probe}.{n}",
                    "turn": n,
                    "n_turns": 2,
                    "ttft_any_s": made.number(ttft),
                    "e2e_s": made.number(ttft + (tokens - 1) / rate),
                    "decode_tokens_per_s": made.number(rate),
                    "completion_tokens": made.number(tokens),
                    "waited_s": waited,
                    "rest_s": rest,
                    "check_passed": passed[n - 1],
                }
            )
            for n, ttft, tokens, waited, rest in made_of
        ]
        ran.append(attempt.model_copy(update={"probes": probes}))
    return analyse_job(spec, plan, ran, [], JobFacts(), workloads={"count": workload}).comparisons[0]


def test_metric_task_prefill_s() -> None:
    assert close(of_tasks().arm_task_prefill_s, 0.5 + 0.7)


def test_metric_task_decode_s() -> None:
    assert close(of_tasks().baseline_task_decode_s, (39 + 19) / 10)
    assert close(of_tasks().arm_task_decode_s, (39 + 19) / 20)


def test_metric_task_tool_wait_s() -> None:
    assert close(of_tasks().arm_task_tool_wait_s, 2.0)


def test_metric_task_rest_s() -> None:
    assert close(of_tasks().baseline_task_rest_s, 0.1)


def test_metric_task_decode_ratio() -> None:
    """Decoding is twice as fast, and the whole task only 9.1 ÷ 6.2 times."""
    compared = of_tasks()
    assert isinstance(compared.task_decode_ratio, Interval)
    assert compared.task_decode_ratio.estimate == pytest.approx(2.0)
    assert isinstance(compared.speedup, Interval)
    assert compared.speedup.estimate == pytest.approx((1.2 + 5.8 + 2.0 + 0.1) / (1.2 + 2.9 + 2.0 + 0.1))


def test_metric_task_passed() -> None:
    """A task passes if each of its turns does."""
    assert close(of_tasks().baseline_task_passed, 1.0)
    assert close(of_tasks().arm_task_passed, 0.0)


def test_metric_p_holm() -> None:
    # one arm: adjusted p is p. t = mean ÷ (s ÷ √3) with 2 degrees of freedom, whose p is 1 − t ÷ √(t² + 2)
    values = [math.log(2), math.log(2), math.log(2.5)]
    mean = sum(values) / 3
    s = math.sqrt(sum((v - mean) ** 2 for v in values) / 2)
    t = mean / (s / math.sqrt(3))
    assert compared().p_holm == pytest.approx(1 - t / math.sqrt(t * t + 2), rel=1e-6)


def test_metric_noise_floor() -> None:
    estimates = [0.02, -0.02] * 5
    # mean 0, variance 10 · 0.0004 ÷ 9 = 0.000444; errors of 0.01 explain 0.0001 of it
    floor = noise_floor(estimates, [0.01] * 10)
    assert floor == pytest.approx(math.exp(2 * math.sqrt(0.004 / 9 - 0.0001)) - 1)


def test_metric_memory_bill_bytes() -> None:
    assert close(compared().memory_bill_bytes, (109 - 100) * 2**20)  # median over blocks of arm minus baseline


def attempt() -> Any:
    return measure_attempt(evidence("b10434-draft4-lv4", [0], "draft"), spec_of(mode="draft", draft_model="d", draft_limit=4), WORKLOADS)


WORKLOADS = {"w": made.workload("w", n=1)}


def test_metric_peak_memory_bytes() -> None:
    # samples while probing: 500 of the processes + 10 + 5 on two devices, then 520 + 10 + 7
    assert close(attempt().peak_memory_bytes, 520 + 10 + 7)


def test_metric_peak_device_bytes() -> None:
    assert close(attempt().peak_device_bytes, 10 + 7)


def test_metric_memory_after_load_bytes() -> None:
    # the one sample in the warm-up: 690 of the processes + 10 + 2 on two devices
    assert close(attempt().memory_after_load_bytes, 690 + 10 + 2)


def test_metric_memory_growth_bytes_per_min() -> None:
    # 715 at 2 s, 727 at 3 s, 746 at 5 s; from their means (10/3 s, 729 1/3) that is
    # (4/3 × 43/3 + 1/3 × 7/3 + 5/3 × 50/3) ÷ (16/9 + 1/9 + 25/9) = (429/9) ÷ (42/9) a second
    assert close(attempt().memory_growth_bytes_per_min, 60 * 429 / 42)


def test_metric_energy_j_per_1k_tokens() -> None:
    # the counter went from 100 to 130 J while an answer of 64 tokens was made
    assert close(attempt().energy_j_per_1k_tokens, 1000 * (130 - 100) / 64)


def test_metric_healthy_after_s() -> None:
    assert attempt().healthy_after_s == 0.8  # as the launch record has it
