"""One AMD GPU as the kernel's driver shows it in files: no library is needed, and what a card has no file for is named."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from speccore.inventory import Device
from speccore.records import DeviceSample

_AMD = "0x1002"
#: Graphics built into a processor have less memory of their own, and compute nothing here.
_LEAST_BYTES = 2 << 30
_CARD = re.compile(r"card\d+$")
_FDINFO = re.compile(r"^(drm-[a-z0-9-]+):\s*(\S+)(?: (KiB|MiB))?", re.MULTILINE)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def find_cards(drm: Path, proc: Path) -> list[AmdCard]:
    """``drm``: /sys/class/drm. In the order of the kernel's numbers."""
    folders = [f / "device" for f in drm.glob("card*") if _CARD.fullmatch(f.name)] if drm.is_dir() else []
    cards = [AmdCard(f, proc) for f in sorted(folders, key=lambda f: int(f.parent.name[4:])) if _read(f / "vendor") == _AMD]
    return [c for c in cards if c.memory_bytes >= _LEAST_BYTES]


class AmdCard:
    """``folder`` is the card's device folder in sysfs, ``proc`` where processes are listed."""

    def __init__(self, folder: Path, proc: Path) -> None:
        self._folder, self._proc = folder, proc
        self._hwmon = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon")
        self._address = folder.resolve().name
        self.memory_bytes = int(_number(folder / "mem_info_vram_total") or 0)
        self.uuid = f"AMD-{_read(folder / 'unique_id') or self._address}"

    def device(self) -> Device:
        return Device(
            uuid=self.uuid,
            kind="gpu",
            name=_read(self._folder / "product_name") or f"AMD GPU {_read(self._folder / 'device')}",
            memory_bytes=self.memory_bytes,
            driver=_read(Path("/sys/module/amdgpu/version")) or "amdgpu of the kernel",
            power_cap_w=self.power_cap_w(),
        )

    def missing(self) -> dict[str, str]:
        """Sensors for which this card has no file, or that the driver tells in no file at all."""
        now, _ = self.sample(set(), processes=False, rates=True)
        names = {
            "memory": now.used_bytes,
            "clock": now.clock_mhz,
            "memory clock": now.memory_clock_mhz,
            "power": now.power_w,
            "power cap": now.cap_w,
            "temperature": now.temperature_c,
            "use": now.busy_percent,
        }
        lacking = {name: "the driver has no file for it" for name, value in names.items() if value is None}
        untold = ("throttle reasons", "PCIe traffic", "energy", "use by process")
        return lacking | dict.fromkeys(untold, "the driver tells it in no file that can be read as text")

    def power_cap_w(self) -> float | None:
        return _scaled(_number(self._hwmon / "power1_cap"), 1e-6)

    def default_power_cap_w(self) -> float | None:
        return _scaled(_number(self._hwmon / "power1_cap_default"), 1e-6)

    def persistent(self) -> bool | None:
        return True  # the driver is part of the kernel and stays

    def processes(self) -> dict[int, int | None] | None:
        """Process → bytes on the card, of those processes whose files this user may read."""
        pids = [int(p.name) for p in self._proc.iterdir() if p.name.isdecimal()]
        return {pid: memory[0] for pid in pids if (memory := self._memory_of(pid)) is not None}

    def sample(self, pids: Collection[int], *, processes: bool, rates: bool) -> tuple[DeviceSample, int | None]:
        """The card now, and the bytes on it of these processes (None: not told). Who else is on it takes a look at every
        process and is not part of a sample."""
        found = [memory for pid in pids if (memory := self._memory_of(pid)) is not None] if processes else []
        power = _number(self._hwmon / "power1_average")
        used = _number(self._folder / "mem_info_vram_used")
        return DeviceSample(
            used_bytes=None if used is None else int(used),
            total_bytes=int(total) if processes and (total := _number(self._folder / "mem_info_vram_total")) is not None else None,
            clock_mhz=_scaled(_number(self._hwmon / "freq1_input"), 1e-6),
            memory_clock_mhz=_scaled(_number(self._hwmon / "freq2_input"), 1e-6),
            power_w=_scaled(power if power is not None else _number(self._hwmon / "power1_input"), 1e-6),
            cap_w=self.power_cap_w() if rates else None,
            temperature_c=_scaled(_number(self._hwmon / "temp1_input"), 1e-3),
            busy_percent=_number(self._folder / "gpu_busy_percent"),
            host_bytes=sum(host for _, host in found) if found else None,
        ), (sum(device for device, _ in found) if found else None)

    def _memory_of(self, pid: int) -> tuple[int, int] | None:
        """Bytes of a process on this card, and of its memory for the card that lies in the host's. None: it doesn't use it."""
        clients: dict[str, tuple[int, int]] = {}  # several descriptors may be of one client
        try:
            entries = list((self._proc / str(pid) / "fdinfo").iterdir())
        except OSError:
            return None
        for entry in entries:
            text = _read(entry)
            if "drm-driver" not in text:
                continue
            fields = {name: (value, unit) for name, value, unit in _FDINFO.findall(text)}
            if fields.get("drm-pdev", ("", ""))[0] == self._address:
                client = fields.get("drm-client-id", (entry.name, ""))[0]
                clients[client] = _bytes(fields.get("drm-memory-vram")), _bytes(fields.get("drm-memory-gtt"))
        if not clients:
            return None
        return sum(device for device, _ in clients.values()), sum(host for _, host in clients.values())


def _bytes(field: tuple[str, str] | None) -> int:
    value, unit = field or ("0", "")
    return int(value) * _UNITS.get(unit, 1) if value.isdecimal() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    text = _read(path)
    return float(text) if text.lstrip("-").isdecimal() else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
