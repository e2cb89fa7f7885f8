"""The GPUs of this machine: NVIDIA's through its management library (extra ``nvidia``), AMD's through the kernel's files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from speccore.inventory import Device
from speccore.records import DeviceSample

from . import amd
from .nvidia import NvidiaCard

_DRM, _PROC = Path("/sys/class/drm"), Path("/proc")


class Card(Protocol):
    uuid: str

    def device(self) -> Device: ...

    def missing(self) -> dict[str, str]: ...

    def power_cap_w(self) -> float | None: ...

    def default_power_cap_w(self) -> float | None: ...

    def persistent(self) -> bool | None: ...

    def processes(self) -> dict[int, int | None] | None: ...

    def sample(self, pids: Collection[int], *, processes: bool, rates: bool) -> tuple[DeviceSample, int | None]: ...


class Gpus:
    """``nvml``: the library's module, or what stands for it; None: the installed one. ``status`` is "ok", or why NVIDIA's
    can't be seen."""

    def __init__(self, nvml: Any = None, *, drm: Path = _DRM, proc: Path = _PROC) -> None:
        self.cards: list[Card] = []
        self._turn = 0
        self.status = "ok"
        try:
            self.cards += _nvidia_cards(nvml)
        except _NotSeen as why:
            self.status = f"missing: {why}"
        self.cards += amd.find_cards(drm, proc)

    def devices(self) -> list[Device]:
        return [card.device() for card in self.cards]

    def sensors(self) -> dict[str, str]:
        """Name → "ok", or why it is missing: the library, and each sensor that a card lacks."""
        found = {"nvml": self.status}
        for n, card in enumerate(self.cards):
            found |= {f"GPU {n} {name}": f"missing: {why}" for name, why in card.missing().items()}
        return found

    def sample(self, pids: Collection[int], *, processes: bool, rates: bool) -> tuple[dict[str, DeviceSample], dict[str, int]]:
        """All cards now, and the bytes that these processes hold on each; a card that doesn't tell is left out there.

        What takes the library a while (``rates``) is asked of one card at a time, in turn.
        """
        now: dict[str, DeviceSample] = {}
        held: dict[str, int] = {}
        for n, card in enumerate(self.cards):
            sample, ours = card.sample(pids, processes=processes, rates=rates and n == self._turn % len(self.cards))
            now[card.uuid] = sample
            if ours is not None:
                held[card.uuid] = ours
        self._turn += rates
        return now, held


class _NotSeen(Exception):
    pass


def _nvidia_cards(nvml: Any) -> list[Card]:
    """Raises :class:`_NotSeen`."""
    if nvml is None:
        try:
            import pynvml as nvml  # type: ignore[no-redef]
        except ImportError:
            raise _NotSeen("pip install 'specweb-agent[nvidia]' to see NVIDIA GPUs") from None
    try:
        nvml.nvmlInit()
        return [NvidiaCard(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        raise _NotSeen(f"NVIDIA's library answers {error}") from error
