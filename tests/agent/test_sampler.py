"""The sampler beside a process: memory, loads, pace. What is not told is no zero."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from specagent import cpus
from specagent.gpus import Gpus
from specagent.sampler import INTERVAL_S, THOROUGH, Sampler, proportional_of, resident

from tests.agent.fake_nvml import FakeNvml, process

GONE = 2**22 + 1  # beyond the highest pid there is


def test_memory_of_this_process() -> None:
    both = [os.getpid(), GONE]
    pss, rss = proportional_of(both), resident(both)
    assert pss is not None
    assert rss is not None
    assert 1_000_000 < pss <= rss * 1.1
    assert (proportional_of([GONE]), resident([GONE])) == (None, None)


def test_a_process_that_has_ended_has_no_memory_not_zero() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has asked how
        assert resident([child.pid]) is None


def test_one_process_that_does_not_tell_leaves_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.read_text

    def closed(path: Path) -> str:
        if str(path) == "/proc/1/smaps_rollup":
            raise PermissionError
        return real(path)

    monkeypatch.setattr(Path, "read_text", closed)
    assert proportional_of([os.getpid()])
    assert proportional_of([os.getpid(), 1]) is None


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        yield child
        child.kill()


def sampled(pid: int, seconds: float, gpus: Gpus) -> Sampler:
    sampler = Sampler(pid, time.monotonic(), lambda: "probing", gpus)
    sampler.start()
    time.sleep(seconds)
    sampler.look()
    sampler.stop()
    return sampler


def test_ten_looks_a_second_each_fifth_a_thorough_one(busy: subprocess.Popen[bytes]) -> None:
    card = {"nvmlDeviceGetComputeRunningProcesses": [process(busy.pid, 77)]}
    found = sampled(busy.pid, 1.6, Gpus(FakeNvml(card), drm=Path("/nowhere")))
    *running, look = found.samples
    assert 8 <= len(running) <= 1.6 / INTERVAL_S + 1
    assert all(s.rss_bytes and s.devices["GPU-1"].temperature_c == 61 and s.temperature_c == 61 for s in running)
    thorough = [n for n, s in enumerate(running) if s.device_bytes]
    assert thorough == list(range(0, len(running), THOROUGH))
    assert all(running[n].devices["GPU-1"].pcie_rx_kb_s == 200 for n in thorough)
    assert look.pss_bytes
    assert look.available_bytes
    assert [n for n, s in enumerate(running) if s.available_bytes] == thorough  # which costs a look at the whole machine
    assert [n for n, s in enumerate(running) if s.devices["GPU-1"].total_bytes] == thorough
    assert look.device_bytes == {"GPU-1": 77}
    assert look.cpu_percent is None
    assert all(s.pss_bytes is None for s in running)  # the walk over the engine's pages is for between requests


def test_a_sensor_that_says_what_can_not_be_costs_its_samples_and_no_more(busy: subprocess.Popen[bytes]) -> None:
    nvml = FakeNvml({"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=10, used=5)})
    sampler = Sampler(busy.pid, time.monotonic(), lambda: "probing", Gpus(nvml, drm=Path("/nowhere")))
    sampler.start()
    nvml.cards[0]["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=10, used=-5)
    time.sleep(0.4)
    sampler.look()
    n_bad = len(sampler.samples)
    nvml.cards[0]["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=10, used=6)
    time.sleep(0.4)
    sampler.stop()
    assert n_bad <= 1
    assert [s.devices["GPU-1"].used_bytes for s in sampler.samples[n_bad:]].count(6) >= 2


def test_it_costs_little(busy: subprocess.Popen[bytes]) -> None:
    found = sampled(busy.pid, 2.0, Gpus(FakeNvml(), drm=Path("/nowhere")))
    assert 0 < found.cpu_s < 0.06  # 3 % of a core, on a machine that may be busy; bench/sampler_cost.py holds it to 1 %


class Proc:
    """A made-up /proc: ticks of the machine and of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, user: int, system: int, idle: int, softirq: int, **ticks: int) -> None:
        (self.root / "stat").write_text(f"cpu  {user} 0 {system} {idle} 0 0 {softirq} 0 0 0\ncpu0 1 2 3\n")
        for name, used in ticks.items():
            folder = self.root / name.removeprefix("p")
            folder.mkdir(exist_ok=True)
            (folder / "stat").write_text(f"{folder.name} (a (odd) name) S " + " ".join(["0"] * 10) + f" {used} 0 0 0 0 0\n")


def test_shares_of_the_machine(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.write(100, 0, 1000, 0, p7=50)
    load = cpus.CpuLoad(tmp_path)
    load.begin([7])
    proc.write(150, 10, 1130, 10, p7=90)  # of 200 ticks 60 in programs, 40 of them ours, 10 in the kernel's own work
    assert load.machine() == pytest.approx(35)
    assert load.others([7]) == pytest.approx(10)
    assert load.others([7]) is None  # no time has passed
    proc.write(170, 10, 1210, 10, p7=90, p8=500)  # one that has just joined brings its past along: not counted as ours
    assert load.others([7, 8]) == pytest.approx(20)


def test_a_fixed_figure_of_a_virtual_machine_is_no_clock(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\ncpu MHz\t\t: 2600.0\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\n")
    assert cpus.clock_mhz(tmp_path, cpuinfo) is None
    cpuinfo.write_text("processor\t: 0\ncpu MHz\t\t: 2600.0\nflags\t\t: fpu\n\ncpu MHz\t\t: 3100.5\nx\n")
    assert cpus.clock_mhz(tmp_path, cpuinfo) == 3100.5
    assert cpus.clock_mhz(tmp_path, tmp_path / "none") is None


def test_clock_governor_and_heat_of_a_real_machine(tmp_path: Path) -> None:
    for core, (khz, package) in enumerate([(1_200_000, 0), (3_600_000, 0), (800_000, 1)]):
        root = tmp_path / f"cpu{core}"
        for name, text in {
            "cpufreq/scaling_cur_freq": khz,
            "cpufreq/scaling_governor": "powersave",
            "topology/physical_package_id": package,
            "thermal_throttle/package_throttle_count": 5 + package,
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"{text}\n")
    assert cpus.clock_mhz(tmp_path) == 3600
    assert cpus.governors(tmp_path) == ["powersave"]
    assert cpus.throttle_count(tmp_path) == 5 + 6  # one core of each processor
