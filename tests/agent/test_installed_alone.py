"""The agent as it would be published: built, looked at, installed in an empty environment, and run there with nothing of the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import specagent
import yaml
from packaging.metadata import Metadata
from speccore import engines
from speccore.presets import presets
from speccore.reference import reference_builds
from speccore.workloads import builtin

from demo.prompts.__main__ import file_of
from tests.agent.test_cli_probe import engine

AGENT = Path(__file__).resolve().parents[2] / "agent"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("built")
    source, dist = folder / "agent", folder / "dist"
    # a copy, so that the build leaves nothing in the working tree
    shutil.copytree(AGENT, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    if uv := shutil.which("uv"):
        subprocess.run([uv, "build", "--quiet", "--out-dir", str(dist), str(source)], check=True, cwd=folder)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(folder / "builder")], check=True)
        pip, python = folder / "builder" / "bin" / "pip", folder / "builder" / "bin" / "python"
        subprocess.run([str(pip), "install", "--quiet", "build"], check=True, cwd=folder)
        subprocess.run([str(python), "-m", "build", "--outdir", str(dist), str(source)], check=True, cwd=folder)
    return dist


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and what it asks for, and no more."""
    folder = tmp_path_factory.mktemp("alone")
    venv = folder / "venv"
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), str(wheel)], check=True, cwd=folder)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", str(wheel)], check=True, cwd=folder)
    return venv / "bin"


def call(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE", "VIRTUAL_ENV")}
    env |= {"HOME": str(cwd), "XDG_STATE_HOME": str(cwd / "state"), "XDG_CONFIG_HOME": str(cwd / "config")}
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, cwd=cwd, env=env, timeout=180)


def test_the_metadata_is_what_an_index_takes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        told = Metadata.from_email(archive.read(name), validate=True)
    assert (told.name, str(told.version), told.license_expression) == ("specweb-agent", specagent.__version__, "Apache-2.0")
    assert told.license_files == ["LICENSE"]
    assert told.description_content_type == "text/markdown"
    assert told.description is not None
    assert told.description.startswith("# specweb-agent")
    assert "](" not in told.description.replace("](http", "")  # a relative link leads nowhere on an index's page
    assert str(told.requires_python) == ">=3.11"
    assert "Operating System :: POSIX :: Linux" in (told.classifiers or [])


def test_what_is_in_it_and_what_is_not(built: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.namelist()
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        in_sdist = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    for names in (in_wheel, in_sdist):
        assert not [n for n in names if "__pycache__" in n or n.startswith(("tests/", "specweb/", "workers/"))]
        assert {f"speccore/presets/{(p.of or p.name)}.yaml" for p in presets().values()} <= set(names)
        assert {f"speccore/workloads/{file_of(w)}" for w in builtin().values()} <= set(names)
        builds = [build.name for engine in engines.names() for build in reference_builds(engine)]
        assert {f"speccore/engines/reference/{name}.json" for name in builds} <= set(names)
    assert {"LICENSE", "README.md", "config.example.yaml", "pyproject.toml"} <= set(in_sdist)
    tops = {n.split("/")[0] for n in in_wheel}
    assert tops == {"speccore", "specagent", "specclient", f"specweb_agent-{specagent.__version__}.dist-info"}


def test_nothing_of_the_server_is_there(alone: Path, tmp_path: Path) -> None:
    program = "import importlib.util as u, specagent.cli; print([m for m in ('django', 'specweb', 'workers', 'celery') if u.find_spec(m)])"
    told = call(alone / "python", "-c", program, cwd=tmp_path)
    assert told.stdout.strip() == "[]", told.stderr


@pytest.fixture
def place(tmp_path: Path, llama_server: Path, demo_models: Path) -> Path:
    """A working folder with a configuration, as somebody has who installed the agent a minute ago."""
    (tmp_path / "specweb-agent.yaml").write_text(
        f"state_dir: state\nthreads: 1\nruntimes: [{{path: {llama_server}}}]\nmodel_folders: [{demo_models}]\n"
    )
    return tmp_path


def test_it_says_what_it_is_and_what_is_here(alone: Path, place: Path) -> None:
    assert call(alone / "specweb-agent", "--version", cwd=place).stdout == f"specweb-agent {specagent.__version__}\n"
    assert call(alone / "specweb", "--version", cwd=place).stdout == f"specweb {specagent.__version__}\n"
    nobody = call(alone / "specweb", "hosts", cwd=place)
    assert (nobody.returncode, "specweb login ADDRESS" in nobody.stderr) == (2, True)
    helped = call(alone / "specweb-agent", "--help", cwd=place)
    for action in ("run", "push", "probe", "compare", "presets", "doctor"):
        assert action in helped.stdout
    checked = call(alone / "specweb-agent", "doctor", cwd=place)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "[ ok ] engine: llama-server" in checked.stdout
    assert "[ ok ] model: target" in checked.stdout
    listed = call(alone / "specweb-agent", "presets", cwd=place)
    assert all(name in listed.stdout for name in presets())


def test_it_runs_an_experiment_alone(alone: Path, place: Path) -> None:
    spec = presets()["ngram-or-nothing"].bound({"TARGET": "target"})
    spec["points"] = [spec["points"][0] | {"max_tokens": 16, "probes": 1}]
    spec |= {"blocks": 3, "engine": {"context": 512}}
    (place / "e.yaml").write_text(yaml.safe_dump(spec))
    ran = call(alone / "specweb-agent", "run", "e.yaml", "--out", "out", cwd=place)
    assert ran.returncode == 0, ran.stderr
    assert "count/c1/ctx0/t0" in ran.stdout
    assert "## N-gram or nothing" in (place / "out" / "report.md").read_text()


def test_it_measures_a_server_that_somebody_started(alone: Path, place: Path, llama_server: Path, demo_models: Path) -> None:
    with engine(llama_server, demo_models, "--metrics") as url:
        ran = call(alone / "specweb-agent", "probe", url, "--workload", "count", "--n", 3, "--max-tokens", 16, cwd=place)
    assert ran.returncode == 0, ran.stderr
    assert "count@2" in ran.stdout
    assert "3/3" in ran.stdout
