"""What an engine writes beside its log goes with it: its temporary files, and shared memory that it could not give back when it was killed."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from specagent.asking import Address
from specagent.launch import Engine
from specagent.scratch import folder_of, sweep
from specagent.starting import ProcessStart

#: Writes a file, holds shared memory as vLLM's workers do, says their names, and ends by KILL only: at TERM it takes more.
STUBBORN = """
import os, signal, sys, tempfile, time
from multiprocessing import resource_tracker, shared_memory
segments = []
def take(*_):
    segments.append(shared_memory.SharedMemory(create=True, size=64))
    resource_tracker.unregister(segments[-1]._name, "shared_memory")
    os.write(1, f"{segments[-1].name} ".encode())
signal.signal(signal.SIGTERM, take)
take()
path = tempfile.NamedTemporaryFile(delete=False).name
print(path, os.environ["TORCHINDUCTOR_CACHE_DIR"], "ready", flush=True)
while True:
    time.sleep(1)
"""


def begun(tmp_path: Path, record: Path | None = None) -> tuple[Engine, Path, Path]:
    start = ProcessStart([sys.executable, "-c", STUBBORN], {"PATH": os.environ["PATH"]}, Address("127.0.0.1", 1))
    engine, _ = start.begin(tmp_path, tmp_path / "log", record)
    assert isinstance(engine, Engine)
    deadline = time.monotonic() + 20
    while "ready" not in (words := (tmp_path / "log").read_text().split() if (tmp_path / "log").exists() else []):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return engine, Path(words[1]), Path("/dev/shm") / words[0]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="shared memory is a folder on Linux only")
def test_a_killed_engine_leaves_no_file_and_no_shared_memory(tmp_path: Path) -> None:
    engine, written, shared = begun(tmp_path)
    assert written.exists()
    assert shared.exists()
    assert written.parent.name.startswith("specweb-")
    compiled = (tmp_path / "log").read_text().split()[2]
    assert not compiled.startswith(str(written.parent))  # what it compiles for this machine is there at the next start
    hurry = threading.Event()
    hurry.set()
    ended = engine.stop(hurry)
    assert ended.left == []
    assert not written.parent.exists()
    names = [word for word in (tmp_path / "log").read_text().split() if word.startswith("psm_")]
    assert len(names) > 1  # it took more when it was told to end
    assert not any((shared.parent / name).exists() for name in names)


def test_shared_memory_of_others_is_left_alone(tmp_path: Path) -> None:
    mine = Path("/dev/shm") / f"psm_{uuid.uuid4().hex[:8]}"
    mine.write_bytes(b"x")
    try:
        engine, _, _ = begun(tmp_path)
        hurry = threading.Event()
        hurry.set()
        engine.stop(hurry)
        assert mine.exists()
    finally:
        mine.unlink()


def test_an_engine_that_can_t_be_started_leaves_no_folder(tmp_path: Path) -> None:
    record = tmp_path / f"{uuid.uuid4()}.json"
    start = ProcessStart([str(tmp_path / "nothing")], {}, Address("127.0.0.1", 1))
    with pytest.raises(Exception, match="can't be started"):
        start.begin(tmp_path, tmp_path / "log", record)
    assert not folder_of(record.stem).exists()


def test_the_next_start_removes_what_a_killed_agent_left() -> None:
    attempt = str(uuid.uuid4())
    folder_of(attempt).mkdir()
    (folder_of(attempt) / "left").write_text("x")
    sweep(attempt)
    assert not folder_of(attempt).exists()
    sweep("../../etc")  # no name of an attempt: nothing happens
