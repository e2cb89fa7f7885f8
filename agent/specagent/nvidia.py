"""One NVIDIA GPU through NVIDIA's management library: what it is, and all its sensors; one that the card lacks is named."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from speccore.inventory import Device
from speccore.records import DeviceSample

T = TypeVar("T")

#: Error codes of the library that stay: not supported, no permission, a function that the driver lacks.
_FOR_GOOD = (3, 4, 13)
#: No process has been busy of late.
_NOBODY = (6, 21)

#: Bit: why the clock is not at its highest.
_REASONS = {
    0x001: "idle",
    0x002: "clocks_set",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "heat_software",
    0x040: "heat_hardware",
    0x080: "power_brake",
    0x100: "display_clock",
}


class NvidiaCard:
    """``nvml`` is the library's Python module, or what stands for it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._missing: dict[str, str] = {}
        self._last_seen_us = 0
        self.uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        self.sample({-1}, processes=True, rates=True)  # finds what is missing

    def missing(self) -> dict[str, str]:
        """Sensors that this card or its driver doesn't have: name → the library's reason."""
        return dict(self._missing)

    def device(self) -> Device:
        nvml = self._nvml
        return Device(
            uuid=self.uuid,
            kind="gpu",
            name=_text(nvml.nvmlDeviceGetName(self._handle)),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(self._handle).total),
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            power_cap_w=self.power_cap_w(),
        )

    def power_cap_w(self) -> float | None:
        return self._ask("power cap", lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000)

    def default_power_cap_w(self) -> float | None:
        return self._ask("default power cap", lambda: self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._handle) / 1000)

    def persistent(self) -> bool | None:
        """Whether the driver stays loaded while nobody uses the card."""
        mode = self._ask("persistence mode", lambda: self._nvml.nvmlDeviceGetPersistenceMode(self._handle))
        return None if mode is None else bool(mode)

    def processes(self) -> dict[int, int | None] | None:
        """Process → bytes on the card (None: the driver hides them). None: the card doesn't tell who is on it.

        An engine on Vulkan stands among the graphics processes, one on both in both lists with the same figure.
        """
        found: dict[int, int | None] = {}
        for listed in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            answer = self._ask("memory by process", lambda name=listed: getattr(self._nvml, name)(self._handle))  # type: ignore[misc]
            if answer is None:
                return None
            found |= {p.pid: p.usedGpuMemory for p in answer}
        return found

    def sample(self, pids: Collection[int], *, processes: bool, rates: bool) -> tuple[DeviceSample, int | None]:
        """The card now, and the bytes on it of these processes (None: not told).

        ``processes``: also who is on it. ``rates``: also what the library measures over a while: PCIe traffic, for which it
        takes 40 ms, and each process's share.
        """
        nvml, handle = self._nvml, self._handle
        there = self.processes() if processes else None
        held, others = _split(there, pids)
        busy = self._busy_by_process() if rates else None
        memory = self._ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return DeviceSample(
            used_bytes=None if memory is None else int(memory.used),
            total_bytes=int(memory.total) if memory is not None and processes else None,
            clock_mhz=self._ask("clock", lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=self._ask("memory clock", lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            power_w=self._ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            cap_w=self.power_cap_w() if rates else None,
            energy_j=self._ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
            temperature_c=self._ask("temperature", lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            busy_percent=self._ask("use", lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            throttle=self._throttle(),
            pcie_rx_kb_s=self._pcie(nvml.NVML_PCIE_UTIL_RX_BYTES) if rates else None,
            pcie_tx_kb_s=self._pcie(nvml.NVML_PCIE_UTIL_TX_BYTES) if rates else None,
            other_pids=others,
            other_busy_percent=None if busy is None or others is None else sum(busy.get(pid, 0.0) for pid in others),
        ), held

    def _throttle(self) -> list[str] | None:
        # the older name of the same call, for older modules
        ask = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        bits = self._ask("throttle reasons", lambda: int(ask(self._handle)))
        return None if bits is None else reasons(bits)

    def _pcie(self, counter: int) -> float | None:
        return self._ask("PCIe traffic", lambda: float(self._nvml.nvmlDeviceGetPcieThroughput(self._handle, counter)))

    def _busy_by_process(self) -> dict[int, float] | None:
        """Process → per cent of the card's processors since the last call. The library lists a process once for each of its periods."""
        listed = self._ask("use by process", self._utilization)
        if listed is None:
            return None
        by_pid: dict[int, list[float]] = {}
        for entry in listed:
            self._last_seen_us = max(self._last_seen_us, int(entry.timeStamp))
            by_pid.setdefault(entry.pid, []).append(min(100.0, float(entry.smUtil)))
        return {pid: sum(shares) / len(shares) for pid, shares in by_pid.items()}

    def _utilization(self) -> list[Any]:
        try:
            return list(self._nvml.nvmlDeviceGetProcessUtilization(self._handle, self._last_seen_us))
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in _NOBODY:
                return []
            raise

    def _ask(self, sensor: str, call: Callable[[], T]) -> T | None:
        """None where there is no answer. A sensor that the card doesn't have is not asked again."""
        if sensor in self._missing:
            return None
        try:
            return call()
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in _FOR_GOOD:
                self._missing[sensor] = str(error)
            return None


def reasons(bits: int) -> list[str]:
    """The names of the bits that are set; one that has no name here is kept as its number."""
    return [_REASONS.get(1 << n, f"bit_{n}") for n in range(64) if bits >> n & 1]


def _split(there: dict[int, int | None] | None, pids: Collection[int]) -> tuple[int | None, list[int] | None]:
    """Bytes of ours, and who else is there. Without any of ours nothing is known: in a container the driver may name
    processes by the host's numbers, or none at all."""
    ours = {pid: size for pid, size in (there or {}).items() if pid in pids}
    if there is None or not ours:
        return None, None
    others = sorted(set(there) - set(ours))
    sizes = [size for size in ours.values() if size is not None]
    return (sum(sizes) if len(sizes) == len(ours) else None), others


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
