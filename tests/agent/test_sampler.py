"""Memory of processes and of devices: what is not told is no zero."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from specagent.gpus import Gpus
from specagent.sampler import proportional_of, resident

GONE = 2**22 + 1  # beyond the highest pid there is


def test_memory_of_this_process() -> None:
    both = [os.getpid(), GONE]
    pss, rss = proportional_of(both), resident(both)
    assert pss is not None
    assert rss is not None
    assert 1_000_000 < pss <= rss * 1.1
    assert (proportional_of([GONE]), resident([GONE])) == (None, None)


def test_one_process_that_does_not_tell_leaves_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.read_text

    def closed(path: Path) -> str:
        if str(path) == "/proc/1/smaps_rollup":
            raise PermissionError
        return real(path)

    monkeypatch.setattr(Path, "read_text", closed)
    assert proportional_of([os.getpid()])
    assert proportional_of([os.getpid(), 1]) is None


class Nvml:
    """NVIDIA's library as far as memory goes: (compute, graphics) processes as {pid: bytes} by device."""

    class NVMLError(Exception):
        pass

    def __init__(self, compute: dict[int, int | None], graphics: dict[int, int | None]) -> None:
        self.compute, self.graphics = compute, graphics

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=p, usedGpuMemory=b) for p, b in self.compute.items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=p, usedGpuMemory=b) for p, b in self.graphics.items()]


@pytest.mark.parametrize(
    ("compute", "graphics", "expected"),
    [
        ({7: 100, 8: 20, 9: 1}, {}, {"G": 120}),
        ({}, {7: 100}, {"G": 100}),  # Vulkan
        ({7: 100}, {7: 100}, {"G": 100}),  # in both lists, counted once
        ({7: None}, {}, {}),  # hidden by the driver
        ({9: 1}, {}, {}),  # none of ours: perhaps named by the host's numbers
        ({}, {}, {}),
    ],
)
def test_device_memory(compute: dict[int, int | None], graphics: dict[int, int | None], expected: dict[str, int]) -> None:
    gpus = Gpus.__new__(Gpus)
    gpus._handles, gpus._nvml = {"G": object()}, Nvml(compute, graphics)
    assert gpus.memory_by_uuid([7, 8]) == expected
