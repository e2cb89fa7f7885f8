"""GPUs through NVIDIA's management library, if the ``nvidia`` extra is installed; without it a host has no GPU and says why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from speccore.inventory import Device


class Gpus:
    """The GPUs of this machine. ``status`` is "ok", or why none can be seen."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self.status = "ok"
        try:
            import pynvml
        except ImportError:
            self.status = "missing: pip install 'specweb-agent[nvidia]' to see NVIDIA GPUs"
            return
        try:
            pynvml.nvmlInit()
            for i in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(i)
                self._handles[_text(pynvml.nvmlDeviceGetUUID(handle))] = handle
        except pynvml.NVMLError as error:
            self.status = f"missing: NVIDIA's library answers {error}"
            return
        self._nvml = pynvml

    def devices(self) -> list[Device]:
        return [self._device(uuid, handle) for uuid, handle in self._handles.items()]

    def memory_by_uuid(self, pids: Iterable[int]) -> dict[str, int]:
        """Bytes that these processes hold on each GPU.

        A device that doesn't tell is left out, and so is one that lists none of them: in a container the driver may name
        processes by the host's numbers, and then nothing listed is no zero.
        """
        wanted = set(pids)
        held: dict[str, int] = {}
        for uuid, handle in self._handles.items():
            try:
                # an engine on Vulkan stands among the graphics processes, one on both in both lists with the same figure
                processes = [
                    *self._nvml.nvmlDeviceGetComputeRunningProcesses(handle),
                    *self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
                ]
            except self._nvml.NVMLError:
                continue
            used = {p.pid: p.usedGpuMemory for p in processes if p.pid in wanted}
            if used and None not in used.values():  # None: the driver hides it (some containers, WDDM)
                held[uuid] = sum(used.values())
        return held

    def temperature_and_clock(self) -> tuple[float | None, float | None]:
        """The hottest GPU's degrees and the slowest GPU's MHz."""
        degrees, clocks = [], []
        for handle in self._handles.values():
            try:
                degrees.append(float(self._nvml.nvmlDeviceGetTemperature(handle, self._nvml.NVML_TEMPERATURE_GPU)))
                clocks.append(float(self._nvml.nvmlDeviceGetClockInfo(handle, self._nvml.NVML_CLOCK_SM)))
            except self._nvml.NVMLError:
                continue
        return (max(degrees, default=None), min(clocks, default=None))

    def _device(self, uuid: str, handle: Any) -> Device:
        try:
            cap: float | None = self._nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
        except self._nvml.NVMLError:
            cap = None
        return Device(
            uuid=uuid,
            kind="gpu",
            name=_text(self._nvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total),
            driver=_text(self._nvml.nvmlSystemGetDriverVersion()),
            power_cap_w=cap,
        )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
