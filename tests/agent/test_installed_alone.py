"""The agent in an empty environment: it installs from its own folder and runs with nothing of the server there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[2] / "agent"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the agent and what it asks for, and no more."""
    folder = tmp_path_factory.mktemp("alone")
    source = folder / "agent"
    # a copy, so that the build leaves nothing in the working tree
    shutil.copytree(AGENT, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    venv = folder / "venv"
    uv = shutil.which("uv")
    if uv:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), str(source)], check=True, cwd=folder)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", str(source)], check=True, cwd=folder)
    return venv / "bin"


def call(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE", "VIRTUAL_ENV")}
    env |= {"HOME": str(cwd), "XDG_STATE_HOME": str(cwd / "state"), "XDG_CONFIG_HOME": str(cwd / "config")}
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, cwd=cwd, env=env, timeout=120)


def test_it_runs(alone: Path, tmp_path: Path, llama_server: Path, demo_models: Path) -> None:
    helped = call(alone / "specweb-agent", "--help", cwd=tmp_path)
    assert helped.returncode == 0
    assert "doctor" in helped.stdout
    config = tmp_path / "specweb-agent.yaml"
    config.write_text(f"state_dir: state\nruntimes: [{{path: {llama_server}}}]\nmodel_folders: [{demo_models}]\n")
    checked = call(alone / "specweb-agent", "doctor", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "[ ok ] engine: llama-server" in checked.stdout
    assert "[ ok ] model: target" in checked.stdout


def test_nothing_of_the_server_is_there(alone: Path, tmp_path: Path) -> None:
    program = "import importlib.util as u, specagent.cli; print([m for m in ('django', 'specweb', 'workers', 'celery') if u.find_spec(m)])"
    told = call(alone / "python", "-c", program, cwd=tmp_path)
    assert told.stdout.strip() == "[]", told.stderr


def test_the_built_in_workloads_are_in_the_distribution(alone: Path, tmp_path: Path) -> None:
    told = call(alone / "python", "-c", "from speccore.workloads import builtin; print(sorted(builtin()))", cwd=tmp_path)
    assert "count" in told.stdout, told.stderr
