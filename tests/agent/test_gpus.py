"""What the sensors of GPUs are read as: missing is named and never a number; who is on a card is told apart."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from specagent.gpus import Gpus
from specagent.nvidia import reasons

from bench.record_nvml import record
from tests.agent.fake_nvml import LOST, NOT_SUPPORTED, FakeNvml, NVMLError, Replayed, process, use

NO_AMD = Path("/nowhere")


def gpus(*cards: dict[str, Any]) -> Gpus:
    return Gpus(FakeNvml(*cards), drm=NO_AMD)


def thorough(seen: Gpus, pids: list[int]) -> Any:
    return seen.sample(pids, processes=True, rates=True)


def test_a_card_and_all_that_it_says() -> None:
    seen = gpus({})
    device = seen.devices()[0]
    assert (device.uuid, device.name, device.memory_bytes, device.driver, device.power_cap_w) == (
        "GPU-1",
        "Made-up Card",
        24 << 30,
        "999.1",
        280,
    )
    now = thorough(seen, [7])[0]["GPU-1"]
    assert now.model_dump(exclude_none=True) == {
        "used_bytes": 3 << 30,
        "total_bytes": 24 << 30,
        "clock_mhz": 1500,
        "memory_clock_mhz": 9500,
        "power_w": 210.5,
        "cap_w": 280,
        "energy_j": 5000,
        "temperature_c": 61,
        "busy_percent": 87,
        "throttle": ["power_cap"],
        "pcie_rx_kb_s": 200,
        "pcie_tx_kb_s": 100,
    }
    assert seen.sensors() == {"nvml": "ok"}


def test_a_sensor_that_is_not_there_is_named_and_asked_once() -> None:
    nvml = FakeNvml(
        {"nvmlDeviceGetPowerUsage": NVMLError(NOT_SUPPORTED), "nvmlDeviceGetCurrentClocksEventReasons": NVMLError(NOT_SUPPORTED)}
    )
    seen = Gpus(nvml, drm=NO_AMD)
    for _ in range(3):
        now = thorough(seen, [7])[0]["GPU-1"]
        assert (now.power_w, now.throttle) == (None, None)
        assert now.temperature_c == 61
    assert nvml.asked["nvmlDeviceGetPowerUsage"] == 1
    assert seen.sensors() == {
        "nvml": "ok",
        "GPU 0 power": "missing: Not Supported",
        "GPU 0 throttle reasons": "missing: Not Supported",
    }


def test_a_fault_of_the_moment_leaves_a_gap_and_comes_back() -> None:
    nvml = FakeNvml({})
    seen = Gpus(nvml, drm=NO_AMD)
    nvml.cards[0]["nvmlDeviceGetTemperature"] = NVMLError(LOST)
    assert thorough(seen, [7])[0]["GPU-1"].temperature_c is None
    nvml.cards[0]["nvmlDeviceGetTemperature"] = 70
    assert thorough(seen, [7])[0]["GPU-1"].temperature_c == 70
    assert seen.sensors() == {"nvml": "ok"}


@pytest.mark.parametrize(
    ("compute", "graphics", "held", "others"),
    [
        ({7: 100, 8: 20, 9: 1}, {}, 120, [9]),
        ({}, {7: 100}, 100, []),  # Vulkan
        ({7: 100}, {7: 100}, 100, []),  # in both lists, counted once
        ({7: None}, {}, None, []),  # hidden by the driver
        ({9: 1}, {}, None, None),  # none of ours: perhaps named by the host's numbers
        ({}, {}, None, None),
    ],
)
def test_memory_of_ours_and_who_else_is_there(compute: dict[int, Any], graphics: dict[int, Any], held: int | None, others: Any) -> None:
    listed = {
        "nvmlDeviceGetComputeRunningProcesses": [process(*p) for p in compute.items()],
        "nvmlDeviceGetGraphicsRunningProcesses": [process(*p) for p in graphics.items()],
    }
    now, ours = thorough(gpus(listed), [7, 8])
    assert ours == ({} if held is None else {"GPU-1": held})
    assert now["GPU-1"].other_pids == others


def test_the_share_of_others_is_a_mean_over_what_came_since_the_last_look() -> None:
    nvml = FakeNvml({"nvmlDeviceGetComputeRunningProcesses": [process(7, 100), process(9, 5)]})
    seen = Gpus(nvml, drm=NO_AMD)
    assert thorough(seen, [7])[0]["GPU-1"].other_busy_percent == 0  # nobody was busy
    nvml.cards[0]["nvmlDeviceGetProcessUtilization"] = [use(7, 90, 1), use(9, 10, 1), use(9, 30, 2)]
    assert thorough(seen, [7])[0]["GPU-1"].other_busy_percent == 20
    assert thorough(seen, [1])[0]["GPU-1"].other_busy_percent is None  # ours is not seen: nor is who the others are
    assert seen.sample([7], processes=False, rates=False)[0]["GPU-1"].other_busy_percent is None


def test_slow_sensors_take_turns() -> None:
    seen = gpus({}, {})
    rows = [thorough(seen, [7])[0] for _ in range(4)]
    assert [[row[u].pcie_rx_kb_s is not None for u in ("GPU-1", "GPU-2")] for row in rows] == [[True, False], [False, True]] * 2


def test_names_of_reasons() -> None:
    assert reasons(0) == []
    assert reasons(0x4 | 0x20 | 0x40) == ["power_cap", "heat_software", "heat_hardware"]
    assert reasons(1 << 12) == ["bit_12"]


def test_without_the_library_or_the_driver_it_says_why() -> None:
    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:
            raise NVMLError(LOST)

    assert Gpus(NoDriver(), drm=NO_AMD).sensors() == {"nvml": "missing: NVIDIA's library answers GPU is lost"}


def test_a_recording_plays_back_as_it_was(tmp_path: Path) -> None:
    nvml = FakeNvml(
        {
            "nvmlDeviceGetComputeRunningProcesses": [process(7, 100), process(4242, 5)],
            "nvmlDeviceGetProcessUtilization": [use(4242, 12, 1)],
        },
        {"nvmlDeviceGetPowerUsage": NVMLError(NOT_SUPPORTED)},
    )
    out = io.StringIO()
    assert record(nvml, out, 0.25, pid=7) == 2
    assert "4242" not in out.getvalue()  # a stranger's process
    live, played = Gpus(nvml, drm=NO_AMD), Gpus(Replayed(out.getvalue().splitlines()), drm=NO_AMD)
    now, ours = thorough(live, [7])
    then, theirs = thorough(played, [7])
    assert ours == theirs == {"GPU-1": 100} or list(theirs.values()) == [100]
    for live_card, played_card in zip(now.values(), then.values(), strict=True):
        hidden = {"other_pids"}
        assert live_card.model_dump(exclude=hidden) == played_card.model_dump(exclude=hidden)
    assert next(iter(then.values())).other_busy_percent == 12
    assert [s for s in played.sensors() if s != "nvml"] == ["GPU 1 power"]


# --- AMD: a made-up tree of the kernel's files ---


def fake_sysfs(root: Path, *, vram: int = 16 << 30, vendor: str = "0x1002") -> Path:
    card = root / "drm" / "card1"
    real = root / "pci" / "0000:03:00.0"
    (real / "hwmon" / "hwmon4").mkdir(parents=True)
    card.mkdir(parents=True)
    (card / "device").symlink_to(real)
    (root / "drm" / "card1-DP-1").mkdir()
    files = {
        "vendor": vendor,
        "device": "0x744c",
        "unique_id": "abc123",
        "mem_info_vram_total": vram,
        "mem_info_vram_used": 5 << 30,
        "gpu_busy_percent": 93,
        "hwmon/hwmon4/power1_average": 250_000_000,
        "hwmon/hwmon4/power1_cap": 300_000_000,
        "hwmon/hwmon4/temp1_input": 65_000,
        "hwmon/hwmon4/freq1_input": 2_400_000_000,
    }
    for name, value in files.items():
        (real / name).write_text(f"{value}\n")
    return root / "drm"


def fdinfo(root: Path, pid: int, number: int, client: int, vram_kib: int, *, address: str = "0000:03:00.0") -> None:
    folder = root / "proc" / str(pid) / "fdinfo"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"drm-driver:\tamdgpu\ndrm-client-id:\t{client}",
        f"drm-pdev:\t{address}",
        f"drm-memory-vram:\t{vram_kib} KiB",
        "drm-memory-gtt:\t8 KiB",
    ]
    (folder / str(number)).write_text("pos:\t0\nflags:\t02\n" + "\n".join(lines) + "\n")


class NoNvidia(FakeNvml):
    def nvmlInit(self) -> None:
        raise NVMLError(9)


def test_an_amd_card_is_read_from_the_kernels_files(tmp_path: Path) -> None:
    drm = fake_sysfs(tmp_path)
    fdinfo(tmp_path, 7, 3, client=1, vram_kib=1000)
    fdinfo(tmp_path, 7, 4, client=1, vram_kib=1000)  # another descriptor of the same client
    fdinfo(tmp_path, 7, 5, client=2, vram_kib=24)
    fdinfo(tmp_path, 7, 6, client=3, vram_kib=5000, address="0000:0a:00.0")  # on another card
    fdinfo(tmp_path, 8, 3, client=4, vram_kib=70)
    seen = Gpus(NoNvidia(), drm=drm, proc=tmp_path / "proc")
    device = seen.devices()[0]
    assert (device.uuid, device.name, device.memory_bytes, device.power_cap_w) == ("AMD-abc123", "AMD GPU 0x744c", 16 << 30, 300)
    now, ours = thorough(seen, [7, 99])
    assert ours == {"AMD-abc123": 1024 * 1024}
    told = now["AMD-abc123"]
    assert (told.used_bytes, told.clock_mhz, told.power_w, told.temperature_c, told.busy_percent) == (5 << 30, 2400, 250, 65, 93)
    assert told.host_bytes == 16 * 1024
    assert (told.throttle, told.other_busy_percent, told.memory_clock_mhz) == (None, None, None)
    assert seen.cards[0].processes() == {7: 1024 * 1024, 8: 70 * 1024}
    missing = seen.sensors()
    assert missing["GPU 0 memory clock"].startswith("missing: ")
    assert missing["GPU 0 throttle reasons"].startswith("missing: ")
    assert "GPU 0 power" not in missing


@pytest.mark.parametrize("tree", [{"vram": 512 << 20}, {"vendor": "0x8086"}])
def test_graphics_inside_a_processor_and_other_makers_are_no_device(tmp_path: Path, tree: dict[str, Any]) -> None:
    assert Gpus(NoNvidia(), drm=fake_sysfs(tmp_path, **tree)).devices() == []
