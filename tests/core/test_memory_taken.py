"""What arms took of memory as measured: layers moved off a device, memory left free, the engine's own parts; and what follows."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.fit import ArmFit, Fit, FitTry
from speccore.host_series import host_facts
from speccore.measurement import ComparisonResult, HostFacts, JobAnalysis, LogFacts
from speccore.memory_taken import parts_of
from speccore.protocol import TrialPlan
from speccore.records import DeviceSample, Sample
from speccore.spec import ExperimentSpec
from speccore.table import analysis_text

from tests.core.made import attempts, planned, spec_of, wobble, workload

MIB = 2**20
GIB = 2**30
FACTS = JobFacts(noise_floor=0.005, hashes_verified=True, n_hashes=80)


def draft(limit: int) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "d", "draft_limit": limit}


def judged(spec: ExperimentSpec, hosts: Any, speeds: dict[str, float] | None = None) -> JobAnalysis:
    """``hosts``: a trial → what its samples say of the host."""
    plan = planned(spec, count=workload(n=80))
    speeds = speeds or {a.name: 1.0 if a.is_baseline else 2.0 for a in spec.arms}
    trials = {t.id: t for t in plan.trials}
    made = [a.model_copy(update={"host": hosts(trials[a.trial])}) for a in attempts(spec, plan, speeds, noise=wobble)]
    return analyse_job(spec, plan, made, [], FACTS)


def only(analysis: JobAnalysis) -> ComparisonResult:
    (comparison,) = analysis.comparisons
    return comparison


def placed(arm_layers: dict[int, int], default: int = 33, total: int = 33) -> Any:
    """All layers on the device in the baseline, fewer in the arm in some blocks."""

    def host(trial: TrialPlan) -> HostFacts:
        n = total if trial.arm == "off" else arm_layers.get(trial.block, default)
        return HostFacts(device="gpu", layers_placed=(n, total))

    return host


class TestLayersMoved:
    SPEC = spec_of(draft(4))

    def test_a_helper_that_moves_the_target_off_the_device_does_not_fit(self) -> None:
        verdict = only(judged(self.SPEC, placed({}, default=29))).verdict
        assert (verdict.word, verdict.reason) == ("disable", "does not fit")
        assert verdict.sentence == "the helper moved 4 layers of the target off the device"

    def test_nothing_moved_is_judged_by_time(self) -> None:
        assert only(judged(self.SPEC, placed({}))).verdict.word == "keep"

    def test_one_start_alone_may_have_met_another_program(self) -> None:
        assert only(judged(self.SPEC, placed({2: 20}))).verdict.word == "keep"
        assert only(judged(self.SPEC, placed({2: 20, 4: 30}))).verdict.sentence.startswith("the helper moved 3 layers")

    def test_not_known_is_not_moved(self) -> None:
        assert only(judged(self.SPEC, lambda t: HostFacts(layers_placed=(33, 33) if t.arm == "off" else None))).verdict.word == "keep"

    def test_the_baseline_once_more_has_no_helper(self) -> None:
        spec = spec_of({"name": "again", "mode": "off", "control": True})
        assert only(judged(spec, placed({}, default=29))).verdict.reason != "does not fit"


def left(**by_arm: float | None) -> Any:
    return lambda trial: HostFacts(free_bytes=by_arm[trial.arm.replace("-", "_")])


class TestFreeMemory:
    SPEC = spec_of(draft(4), requirements={"free_memory_mib": 1024})

    def test_an_arm_that_leaves_too_little_is_disabled_for_memory(self) -> None:
        verdict = only(judged(self.SPEC, left(off=4.0 * GIB, draft_4=0.5 * GIB))).verdict
        assert (verdict.word, verdict.reason) == ("disable", "memory")
        assert verdict.sentence == "leaves 512 MiB free where the model runs, 1,024 MiB are required"

    def test_enough_is_kept(self) -> None:
        assert only(judged(self.SPEC, left(off=4.0 * GIB, draft_4=1.0 * GIB))).verdict.word == "keep"

    def test_the_lowest_of_all_trials_counts(self) -> None:
        def host(trial: TrialPlan) -> HostFacts:
            return HostFacts(free_bytes=100.0 * MIB if trial.arm == "draft-4" and trial.block == 3 else 4.0 * GIB)

        assert only(judged(self.SPEC, host)).verdict.reason == "memory"

    @pytest.mark.parametrize("known_blocks", [set(), {1, 2, 3, 4}])
    def test_not_known_is_not_kept(self, known_blocks: set[int]) -> None:
        def host(trial: TrialPlan) -> HostFacts:
            return HostFacts(free_bytes=8.0 * GIB if trial.block in known_blocks else None)

        verdict = only(judged(self.SPEC, host)).verdict
        assert (verdict.word, verdict.reason) == ("inconclusive", "requirement not checked")
        assert verdict.sentence.endswith("but its memory left free, which the experiment requires, is not known")

    def test_a_shorter_limit_that_holds_it_is_named(self) -> None:
        spec = spec_of(draft(2), draft(8), requirements={"free_memory_mib": 1024})
        found = judged(spec, left(off=4.0 * GIB, draft_2=2.0 * GIB, draft_8=0.5 * GIB), {"off": 1.0, "draft-2": 1.5, "draft-8": 2.0})
        longer = next(c for c in found.comparisons if c.arm == "draft-8")
        assert longer.verdict.reason == "memory"
        assert longer.verdict.sentence.endswith("; draft-2, with a shorter limit, holds it")

    def test_nothing_is_asked_where_nothing_is_required(self) -> None:
        assert only(judged(spec_of(draft(4)), left(off=None, draft_4=None))).verdict.word == "keep"


class TestSamples:
    ON_GPU = LogFacts(devices=["CUDA0"], memory_mib={"target model CUDA0": 900.0})

    def free(self, *samples: Sample, log: LogFacts | None = None) -> float | None:
        return host_facts(list(enumerate(samples, 1)), log or LogFacts(), None).free_bytes

    def gpu(self, at_s: float, phase: str = "probing", **memory: dict[str, int]) -> Sample:
        return Sample(
            at_s=at_s,
            phase=phase,
            device_bytes={"G": 5},
            available_bytes=1,
            devices={uuid: DeviceSample(**seen) for uuid, seen in memory.items()},
        )

    def test_on_a_device_it_is_its_size_less_what_all_hold_there(self) -> None:
        samples = [
            self.gpu(1, "starting", G={"used_bytes": 99, "total_bytes": 100}),
            self.gpu(2, G={"used_bytes": 60, "total_bytes": 100}, H={"used_bytes": 95, "total_bytes": 100}),
            self.gpu(3, G={"used_bytes": 70}),
        ]
        assert self.free(*samples, log=self.ON_GPU) == 30

    def test_of_two_devices_the_fuller_one_counts(self) -> None:
        both = Sample(
            at_s=1,
            phase="probing",
            device_bytes={"G": 1, "H": 1},
            devices={"G": DeviceSample(used_bytes=10, total_bytes=50), "H": DeviceSample(used_bytes=30, total_bytes=50)},
        )
        assert self.free(both, log=self.ON_GPU) == 20

    def test_a_device_that_does_not_tell_leaves_it_unknown(self) -> None:
        assert self.free(self.gpu(1, G={"used_bytes": 60}), log=self.ON_GPU) is None

    def test_on_the_processor_it_is_what_programs_could_still_take(self) -> None:
        samples = [Sample(at_s=n, phase="probing", available_bytes=free) for n, free in enumerate((900, 700, 800))]
        assert self.free(*samples) == 700
        assert self.free(Sample(at_s=1, phase="probing")) is None


def test_the_engines_own_parts_by_owner_and_place() -> None:
    log = LogFacts(
        devices=["CUDA0"],
        memory_mib={
            "target model CUDA0": 900.0,
            "target model CPU_Mapped": 30.0,
            "target KV CUDA0": 100.0,
            "target RS CUDA0": 2.0,
            "target compute CUDA0": 50.0,
            "target compute CUDA_Host": 5.0,
            "target output CPU": 1.0,
            "draft KV CUDA0": 10.0,
        },
    )
    parts = {k: round(v / MIB) for k, v in parts_of(log.memory_mib, log.devices).items()}
    assert parts == {
        ("target", "weights", True): 900,
        ("target", "weights", False): 30,
        ("target", "cache", True): 102,
        ("target", "buffers", True): 50,
        ("target", "buffers", False): 6,
        ("draft", "cache", True): 10,
    }
    assert parts_of({}, []) == {}


def test_what_was_found_after_the_blocks_goes_into_the_analysis_and_its_text() -> None:
    spec = spec_of(draft(4), fit=True)
    plan = planned(spec, count=workload(n=80))
    made = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=wobble)
    found = Fit(arms=[ArmFit(arm="off", mode="off", top=2048, tries=[FitTry(context=2048, loads=True)])])
    with_fit = [*made[:-1], made[-1].model_copy(update={"fit": found})]
    assert analyse_job(spec, plan, made, [], FACTS).fit is None
    analysis = analyse_job(spec, plan, with_fit, [], FACTS)
    assert analysis.fit == found
    assert "largest context:\n  off: loads up to the model's own 2,048 tokens per slot" in analysis_text(analysis)
