"""The preflight: fast, before anything is downloaded, and each failure names the command that mends it."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo import preflight

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("PORT", "SPECWEB_HOME", "LLAMA_SERVER", "DATABASE_URL", "BROKER_URL")}
    command = [sys.executable, "-S", "demo/preflight.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**clean, **environment}, capture_output=True, text=True, check=False)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "not" / "there yet"


def test_it_passes_here_soon_and_writes_nothing(tmp_path):
    began = time.monotonic()
    done = run("tools")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 10  # a moment, also beside other work: nothing is waited for
    assert run("demo", SPECWEB_HOME="/var/tmp/specweb-nothing-here").returncode == 0
    assert not Path("/var/tmp/specweb-nothing-here").exists()


def test_all_faults_are_told_at_once_with_their_remedies():
    done = run("demo", PORT="eighty", LLAMA_SERVER="/no/such server")
    assert done.returncode == 1
    assert "PORT=eighty is no port number" in done.stderr
    assert "make demo PORT=8000" in done.stderr
    assert "ls -l '/no/such server'" in done.stderr


def test_a_busy_port_is_no_fault_and_the_next_free_one_is_found():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        busy = s.getsockname()[1]
        free = preflight.first_free_port(busy)
        assert free is not None
        assert free > busy


def test_a_port_range_without_a_free_one_is_a_fault(monkeypatch):
    monkeypatch.setattr(preflight, "PORTS_TRIED", 1)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        monkeypatch.setenv("PORT", str(s.getsockname()[1]))
        what, remedy = preflight.check_port()
    assert "no free port" in what
    assert remedy == "make demo PORT=18000"


def test_an_old_python_gets_the_name_of_a_newer_one_that_is_there(monkeypatch):
    monkeypatch.setattr(preflight.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(preflight, "starts", lambda name: name == "python3.12")
    assert preflight.check_python() == ("Python 3.9 is older than 3.11", "make demo PYTHON=python3.12")


def test_an_interpreter_that_has_a_name_and_does_not_start_is_not_advised(tmp_path, monkeypatch):
    shim = tmp_path / "python3.14"  # as pyenv leaves for versions that are installed and not chosen
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(preflight.sys, "version_info", (3, 9, 2))
    assert not preflight.starts("python3.14")
    assert preflight.starts(sys.executable)
    assert "PYTHON=" not in preflight.check_python()[1]


def test_an_empty_folder_of_a_removed_package_is_no_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", type(sys)("ensurepip"))  # what importing an empty folder gives
    what, _remedy = preflight.check_python()
    assert "no module ensurepip" in what


def test_the_script_can_be_read_by_python_3_6():
    import ast

    source = (ROOT / "demo/preflight.py").read_text()
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__" not in source  # 3.6 doesn't know annotations


def test_a_missing_venv_module_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    monkeypatch.setattr(preflight.shutil, "which", lambda name: name if name == "apt-get" else None)
    what, remedy = preflight.check_python()
    assert "ensurepip" in what
    version = "{}.{}".format(*sys.version_info[:2])
    assert remedy.endswith(f"apt-get install -y python{version}-venv")


@pytest.mark.parametrize(("libc", "fails"), [("glibc 2.35", False), ("glibc 2.31", True), (None, True), ("glibc 2.40", False)])
def test_glibc_is_compared_by_number(monkeypatch, libc, fails):
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.setattr(preflight.os, "confstr", lambda _name: libc)
    fault = preflight.check_glibc()
    assert (fault is not None) == fails
    if fails:
        assert "LLAMA_SERVER=" in fault[1]


def test_an_engine_of_ones_own_needs_neither_glibc_nor_libgomp(monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "/bin/sh")
    monkeypatch.setattr(preflight.os, "confstr", lambda _name: None)
    monkeypatch.setattr(preflight.platform, "machine", lambda: "aarch64")
    assert preflight.check_glibc() is None
    assert preflight.check_libgomp() is None
    assert preflight.check_machine() is None


def test_a_missing_libgomp_names_the_package(monkeypatch):
    monkeypatch.delenv("LLAMA_SERVER", raising=False)

    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(preflight.ctypes, "CDLL", no_library)
    monkeypatch.setattr(preflight.shutil, "which", lambda name: name if name == "dnf" else None)
    what, remedy = preflight.check_libgomp()
    assert "libgomp.so.1" in what
    assert remedy.endswith("dnf install -y libgomp")


def test_a_state_folder_that_is_a_file_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        monkeypatch.setenv("SPECWEB_HOME", str(tmp_path / name))
        what, remedy = preflight.check_home()
        assert f"{tmp_path / 'file'} is no folder" in what
        assert remedy.startswith("make demo SPECWEB_HOME=")


def test_a_missing_interpreter_is_told_by_make(tmp_path):
    done = subprocess.run(["make", "demo", "PYTHON=no-such-python"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "no-such-python is not there" in done.stderr
    assert "python3-venv" in done.stderr


def test_a_full_disk_is_told_before_anything_is_downloaded(monkeypatch, home):
    monkeypatch.setenv("SPECWEB_HOME", str(home))
    full = type("Usage", (), {"free": 10**9})()
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _path: full)
    what, remedy = preflight.check_disk()
    assert "2 GB" in what
    assert "SPECWEB_HOME=" in remedy


def test_a_closed_parent_of_the_state_folder_is_told_and_stays_closed(monkeypatch, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setenv("SPECWEB_HOME", str(closed / "home"))
    monkeypatch.delenv("DATABASE_URL", raising=False)
    closed.chmod(0o700 if os.geteuid() == 0 else 0o500)
    what, remedy = preflight.check_home()
    assert str(closed) in what or str(tmp_path.parent) in what
    assert remedy.startswith("make demo SPECWEB_HOME=")
    assert closed.stat().st_mode & 0o777 == (0o700 if os.geteuid() == 0 else 0o500)
    closed.chmod(0o755)
