"""fake_nvml: stands for NVIDIA's library where there is no card. It answers what a test sets, or what a recording holds.

The shapes (functions, fields, error codes) are those of the module ``pynvml``; values are made up unless they come from a
recording of ``bench/record_nvml.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, NOT_FOUND, LOST = 3, 6, 15


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}.get(value, f"error {value}"))
        self.value = value


#: What a card answers unless a test says otherwise: function → answer, or an error.
USUAL: dict[str, Any] = {
    "nvmlDeviceGetUUID": "GPU-1",
    "nvmlDeviceGetName": b"Made-up Card",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 << 30, used=3 << 30),
    "nvmlDeviceGetEnforcedPowerLimit": 280_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 350_000,
    "nvmlDeviceGetPersistenceMode": 0,
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetClockInfo": {1: 1500, 2: 9500},
    "nvmlDeviceGetPowerUsage": 210_500,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=40),
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetPcieThroughput": {0: 100, 1: 200},
    "nvmlDeviceGetProcessUtilization": NVMLError(NOT_FOUND),
}


class FakeNvml:
    """``cards``: what differs from :data:`USUAL`, for each card. ``asked`` counts the calls by name."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self, *cards: dict[str, Any]) -> None:
        self.cards = [USUAL | {"nvmlDeviceGetUUID": f"GPU-{n}"} | card for n, card in enumerate(cards, 1)]
        self.asked: dict[str, int] = {}

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlSystemGetDriverVersion(self) -> str:
        return "999.1"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def call(handle: int, argument: int | None = None) -> Any:
            self.asked[name] = self.asked.get(name, 0) + 1
            answer = self.cards[handle][name]
            if isinstance(answer, dict):
                answer = answer[argument]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class Replayed(FakeNvml):
    """Answers what the lines of a recording say, call by call, and the last of each again when they are through."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__()
        self._answers: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            entry = json.loads(line)
            if "call" in entry:
                self._answers.setdefault(_key(entry["call"], entry["device"], entry["args"]), []).append(entry)
        self.cards = [{} for _ in {key.split()[1] for key in self._answers}]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "recorded"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def call(handle: int, *arguments: int) -> Any:
            # the moment since which shares are wanted differs in each run
            told = [] if name == "nvmlDeviceGetProcessUtilization" else list(arguments)
            left = self._answers[_key(name, handle, told)]
            entry = left.pop(0) if len(left) > 1 else left[0]
            if "error" in entry:
                raise NVMLError(entry["error"])
            return _shaped(entry["answer"])

        return call


def _key(name: str, device: int, args: list[int]) -> str:
    return f"{name} {device} {args}"


def _shaped(answer: Any) -> Any:
    if isinstance(answer, dict):
        return SimpleNamespace(**answer)
    return [_shaped(a) for a in answer] if isinstance(answer, list) else answer


def process(pid: int, size: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


def use(pid: int, share: int, at_us: int) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, smUtil=share, timeStamp=at_us)
