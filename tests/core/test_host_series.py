"""What samples say of the host, and the checks that rest on it: missing is not checked, never passed."""

from __future__ import annotations

from typing import Any

import pytest
from speccore import host_checks
from speccore.host_series import after_load, energy_per_1k_tokens, growth_per_min, host_facts
from speccore.measurement import Check, HostFacts, LogFacts, Withheld, value_of
from speccore.records import DeviceSample, Sample

MIB = 2**20
ON_GPU = LogFacts(
    devices=["CUDA0"],
    memory_mib={"target model CUDA0": 900.0, "target KV CUDA0": 100.0, "target model CPU_Mapped": 300.0},
    layers_offloaded="33/33",
)


def gpu(at_s: float, phase: str = "probing", held: int | None = 1100 * MIB, **seen: Any) -> Sample:
    return Sample(
        at_s=at_s,
        phase=phase,
        rss_bytes=100,
        device_bytes={} if held is None else {"G": held},
        devices={"G": DeviceSample(**seen)},
    )


def facts(*samples: Sample, log: LogFacts = ON_GPU, layers: int | None = None) -> HostFacts:
    return host_facts(list(enumerate(samples, 1)), log, layers)


def of(check: Check) -> tuple[str, str]:
    return check.kind, check.state


def test_reasons_are_counted_but_for_harmless_ones_and_only_while_probing() -> None:
    found = facts(
        gpu(1, "starting", throttle=["power_brake"]),
        gpu(2, throttle=["power_cap", "idle"]),
        gpu(3, throttle=["power_cap", "heat_software"]),
        gpu(4, throttle=["heat_software", "hardware_slowdown"]),
    )
    assert found.throttle == {"heat_software": 2, "hardware_slowdown": 1}
    assert facts(gpu(1, throttle=["power_cap"])).throttle == {}
    assert facts(gpu(1)).throttle is None


def test_a_device_that_the_engine_does_not_use_does_not_count() -> None:
    other = DeviceSample(throttle=["heat_hardware"], clock_mhz=300, other_busy_percent=99)
    mine = DeviceSample(throttle=[], clock_mhz=1500, other_busy_percent=1, busy_percent=80)
    found = facts(Sample(at_s=1, phase="probing", device_bytes={"G": 5}, devices={"G": mine, "H": other}))
    assert (found.throttle, found.clock_mhz, found.others_busy_percent) == ({}, 1500, 1)


def test_the_clock_is_the_median_while_the_device_works() -> None:
    found = facts(*(gpu(i, clock_mhz=c, busy_percent=b) for i, (c, b) in enumerate([(300, 0), (1500, 50), (1400, 90), (1600, 100)])))
    assert found.clock_mhz == 1500


def test_an_engine_on_the_processor_is_judged_by_the_processor() -> None:
    samples = [
        Sample(at_s=1, phase="probing", cpu_throttled=7, others_cpu_percent=2, cpu_mhz=3000, devices={"G": DeviceSample(clock_mhz=1)}),
        Sample(at_s=2, phase="probing", cpu_throttled=7, others_cpu_percent=4, cpu_mhz=3200),
        Sample(at_s=3, phase="probing", cpu_throttled=9, cpu_mhz=3100),
    ]
    found = facts(*samples, log=LogFacts())
    assert (found.device, found.throttle, found.others_busy_percent, found.clock_mhz) == ("cpu", {"heat": 2}, 3, 3100)
    assert facts(*samples[:2], log=LogFacts()).throttle == {}
    assert facts(samples[0], log=LogFacts()).throttle is None


def test_loaded_is_what_the_log_says_of_devices_alone() -> None:
    found = facts(gpu(1, "warm-up", 1200 * MIB), gpu(2), layers=99)
    assert (found.loaded_bytes, found.held_bytes) == (1000 * MIB, 1200 * MIB)
    assert (found.layers_asked, found.layers_placed) == (99, (33, 33))
    no_gpu = LogFacts(memory_mib={"target model CPU_Mapped": 3.8}, layers_offloaded="5/5")  # so says a build with no device
    assert facts(gpu(1), log=no_gpu).layers_placed == (0, 5)
    assert facts(gpu(1), log=LogFacts(layers_offloaded="5/5")).layers_placed is None
    assert facts(gpu(1, held=None)).held_bytes is None
    assert facts(gpu(1, held=None, used_bytes=7), gpu(2, held=None)).cards_bytes == 7
    assert facts(gpu(1)).cards_bytes is None
    assert facts(gpu(1), log=LogFacts()).loaded_bytes is None


def test_growth_needs_samples_and_time() -> None:
    def numbered(*at: float) -> list[tuple[int, Sample]]:
        return [(i, gpu(t, held=int(1000 + 10 * t))) for i, t in enumerate(at)]

    assert value_of(growth_per_min(numbered(0, 1, 2), ON_GPU)) == pytest.approx(600)
    for short in (numbered(), numbered(0, 2), numbered(0, 1, 1.9)):
        assert isinstance(growth_per_min(short, ON_GPU), Withheld)
    unseen = [(i, gpu(i, held=None)) for i in range(5)]  # the engine's memory on its device is unknown: no sum without it
    assert isinstance(growth_per_min(unseen, ON_GPU), Withheld)
    assert isinstance(after_load([(1, gpu(0, "warm-up", held=None))], ON_GPU), Withheld)


def test_energy_that_did_not_count_is_withheld() -> None:
    for samples in ([], [gpu(1), gpu(2)], [gpu(1, energy_j=5), gpu(2, energy_j=5)], [gpu(1, energy_j=9), gpu(2, energy_j=2)]):
        assert isinstance(energy_per_1k_tokens(list(enumerate(samples)), []), Withheld)


# --- checks ---


def test_throttling() -> None:
    cool, hot, mute = HostFacts(device="gpu", throttle={}), HostFacts(device="gpu", throttle={"heat_software": 4}), HostFacts(device="gpu")
    assert of(host_checks.throttling({"a": cool, "b": cool})) == ("hard", "passed")
    check = host_checks.throttling({"a": cool, "b": hot})
    assert of(check) == ("hard", "failed")
    assert check.sentence == "the clock was held down in 1 of 2 trials, first b: heat software (4 samples)"
    assert of(host_checks.throttling({"a": mute})) == ("soft", "not checked")
    assert "1 of 2 trials; the others don't tell" in host_checks.throttling({"a": cool, "b": mute}).sentence
    assert of(host_checks.throttling({"a": HostFacts(throttle={"heat": 2})})) == ("soft", "failed")  # a processor


@pytest.mark.parametrize(
    ("device", "share", "expected"),
    [
        ("gpu", 5.0, ("hard", "passed")),
        ("gpu", 5.1, ("hard", "failed")),
        ("cpu", 40.0, ("soft", "failed")),
        ("gpu", None, ("soft", "not checked")),
    ],
)
def test_others_on_the_device(device: Any, share: float | None, expected: tuple[str, str]) -> None:
    check = host_checks.other_processes({"a": HostFacts(device=device, others_busy_percent=share, other_pids=[77])})
    assert of(check) == expected
    assert ("(process 77)" in check.sentence) == (check.state == "failed")


def test_memory_that_was_spilled_in_the_baseline_is_hard_and_in_the_arm_its_own_cost() -> None:
    whole = HostFacts(device="gpu", loaded_bytes=1000 * MIB, held_bytes=1000 * MIB)
    rounded = whole.model_copy(update={"held_bytes": 991 * MIB})
    spilled = whole.model_copy(update={"held_bytes": 700 * MIB})
    assert of(host_checks.memory_placed({"a": whole}, {"b": rounded})) == ("hard", "passed")
    check = host_checks.memory_placed({"a": spilled}, {"b": whole})
    assert of(check) == ("hard", "failed")
    assert "says it loaded 1,000 MiB on devices, which held 700 MiB" in check.sentence
    assert of(host_checks.memory_placed({"a": whole}, {"b": spilled})) == ("soft", "failed")
    assert of(host_checks.memory_placed({"a": HostFacts()}, {"b": HostFacts()})) == ("soft", "not checked")
    unseen = HostFacts(device="gpu", loaded_bytes=1000 * MIB, cards_bytes=900 * MIB)  # the card as a whole can't hold it
    assert of(host_checks.memory_placed({"a": unseen}, {})) == ("hard", "failed")
    roomy = unseen.model_copy(update={"cards_bytes": 5000 * MIB})
    assert of(host_checks.memory_placed({"a": roomy}, {})) == ("soft", "not checked")
    half = HostFacts(loaded_bytes=5)
    assert of(host_checks.memory_placed({"a": half}, {})) == ("soft", "not checked")


@pytest.mark.parametrize(
    ("asked", "placed", "state"),
    [(99, (33, 33), "passed"), (10, (10, 33), "passed"), (99, (20, 33), "failed"), (0, (5, 33), "failed"), (None, (5, 33), "not checked")],
)
def test_layers_lie_where_they_were_asked_for(asked: int | None, placed: tuple[int, int], state: str) -> None:
    assert host_checks.memory_placed({"a": HostFacts(layers_asked=asked, layers_placed=placed)}, {}).state == state


def test_clock_spread() -> None:
    def trials(*clocks: float | None) -> dict[str, HostFacts]:
        return {f"t{i}": HostFacts(clock_mhz=c) for i, c in enumerate(clocks)}

    assert of(host_checks.clock_spread(trials(1000, 1030))) == ("soft", "passed")
    check = host_checks.clock_spread(trials(1000, 1031, None))
    assert of(check) == ("soft", "failed")
    assert "3.1 % apart, from 1,000 MHz (t0) to 1,031 MHz (t1)" in check.sentence
    assert of(host_checks.clock_spread(trials(1000, None))) == ("soft", "not checked")
