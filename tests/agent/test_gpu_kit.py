"""The kit for a real card, where there is none: it fails loudly and claims nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from specagent.gpus import Gpus
from speccore.records import DeviceSample, Sample

from bench import gpu_check, gpu_load
from tests.agent.conftest import REPO
from tests.agent.fake_nvml import FakeNvml


def test_the_script_ends_with_2_where_no_card_is_listed(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "nvidia-smi"
    broken.parent.mkdir()
    for answer in ("", "echo 'NVIDIA-SMI has failed: no driver'; exit 9"):
        broken.write_text(f"#!/bin/sh\n{answer}\n")
        broken.chmod(0o755)
        env = os.environ | {"PATH": f"{broken.parent}:{os.environ['PATH']}"}
        ran = subprocess.run([REPO / "bench/gpu_check.sh", tmp_path / "out"], env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 2
        assert "no NVIDIA GPU is here" in ran.stderr
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a card")
def test_without_a_driver_neither_load_nor_checks_pretend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="libcuda"):
        gpu_load.hold(1 << 20, 1, busy=False)
    assert gpu_check.main(tmp_path) == 2
    assert "Nothing was shown" in capsys.readouterr().err
    with pytest.raises(gpu_check.Failed, match="could not take memory"), gpu_check.load(1 << 20, seconds=1):
        pass


def test_what_it_holds_samples_against(tmp_path: Path) -> None:
    assert gpu_check.sensors(Gpus(FakeNvml({}), drm=Path("/nowhere")), tmp_path).startswith("1 cards; missing: nothing")
    with pytest.raises(gpu_check.Failed, match="shows no card"):
        gpu_check.sensors(Gpus(FakeNvml(), drm=Path("/nowhere")), tmp_path)
    samples = [
        Sample(at_s=i, phase="probing", device_bytes={"G": gpu_check.HELD}, devices={"G": DeviceSample(throttle=[])}) for i in range(3)
    ]
    assert gpu_check.facts(samples, gpu_check.HELD).loaded_bytes == gpu_check.HELD
    assert gpu_check.host_checks.memory_placed({"t": gpu_check.facts(samples, gpu_check.HELD)}, {}).state == "passed"
    assert gpu_check.host_checks.memory_placed({"t": gpu_check.facts(samples, 2 * gpu_check.HELD)}, {}).state == "failed"
