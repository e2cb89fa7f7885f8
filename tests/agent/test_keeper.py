"""Starting and stopping real processes under the keeper: whatever happens, nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from specagent import keeper, launch
from specagent.launch import Engine
from speccore.errors import EngineExitedAtStart


def start(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch | None = None, grace_s: float | None = None) -> Engine:
    if monkeypatch and grace_s is not None:
        monkeypatch.setattr(launch, "GRACE_S", grace_s)
    script = tmp_path / "engine.py"
    script.write_text(textwrap.dedent(program))
    return Engine([sys.executable, str(script)], {"PATH": os.environ["PATH"]}, tmp_path, tmp_path / "server.log")


def wait_for(path: Path, text: str = "", timeout_s: float = 10) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.exists() and text in path.read_text() and path.read_text():
            return path.read_text()
        time.sleep(0.01)
    raise TimeoutError(path)


def gone(pid: int, timeout_s: float = 5) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_stop_is_orderly_and_its_output_is_kept(tmp_path: Path) -> None:
    engine = start(
        tmp_path,
        """
        import signal, sys, time
        def end(*_): print("bye", flush=True); sys.exit(7)
        signal.signal(signal.SIGTERM, end)
        print("up", flush=True); print("on stderr", file=sys.stderr, flush=True)
        time.sleep(60)
        """,
    )
    wait_for(tmp_path / "server.log", "on stderr")
    ended = engine.stop()
    assert (ended.exit_code, ended.stopped_by, ended.left) == (7, "agent", [])
    assert (tmp_path / "server.log").read_text().splitlines() == ["up", "on stderr", "bye"]
    assert gone(engine.pid)
    assert engine.stop() == ended


def test_an_engine_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    engine = start(tmp_path, "import sys; sys.exit(3)")
    ended = engine.ended(timeout_s=10)
    assert ended is not None
    assert (ended.exit_code, ended.stopped_by, ended.left) == (3, "itself", [])
    assert engine.stop() == ended


def test_a_signal_shows_as_a_negative_exit_code(tmp_path: Path) -> None:
    engine = start(tmp_path, "import time; time.sleep(60)")
    os.kill(engine.pid, signal.SIGKILL)
    ended = engine.ended(timeout_s=10)
    assert ended is not None
    assert (ended.exit_code, ended.stopped_by) == (-9, "itself")
    engine.stop()


def test_one_that_ignores_term_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    engine = start(tmp_path, program, monkeypatch, grace_s=0.3)
    wait_for(tmp_path / "server.log", "up")
    ended = engine.stop()
    assert (ended.exit_code, ended.left) == (-9, [])
    assert gone(engine.pid)


def test_a_grandchild_in_a_session_of_its_own_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(
        tmp_path,
        """
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        print(child.pid, flush=True)
        time.sleep(60)
        """,
        monkeypatch,
        grace_s=0.3,
    )
    grandchild = int(wait_for(tmp_path / "server.log", "\n"))
    ended = engine.stop()
    assert ended.left == []
    assert gone(grandchild)


def test_children_of_an_engine_that_crashed_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(
        tmp_path,
        """
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(child.pid, flush=True)
        os._exit(1)
        """,
        monkeypatch,
        grace_s=0.3,
    )
    child = int(wait_for(tmp_path / "server.log", "\n"))
    ended = engine.ended(timeout_s=10)
    assert ended is not None
    assert (ended.exit_code, ended.stopped_by, ended.left) == (1, "itself", [])
    assert gone(child)
    engine.stop()


def test_the_engine_goes_when_the_agent_is_killed(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        textwrap.dedent(
            f"""
            import os, sys, time
            from pathlib import Path
            from specagent.launch import Engine
            here = Path({str(tmp_path)!r})
            engine = Engine([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ), here, here / "server.log")
            print(engine.pid, engine._keeper.pid, flush=True)
            time.sleep(60)
            """
        )
    )
    process = subprocess.Popen([sys.executable, str(agent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    engine_pid, keeper_pid = map(int, process.stdout.readline().split())
    assert psutil.pid_exists(engine_pid)
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(engine_pid)
    assert gone(keeper_pid)


def test_the_engine_goes_when_its_keeper_is_killed(tmp_path: Path) -> None:
    engine = start(tmp_path, "import time; time.sleep(60)")
    os.kill(engine._keeper.pid, signal.SIGKILL)
    assert gone(engine.pid)
    ended = engine.stop()
    assert ended.left == []


def test_an_executable_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EngineExitedAtStart, match="nowhere"):
        Engine([str(tmp_path / "nowhere")], {}, tmp_path, tmp_path / "server.log")


def test_the_keeper_needs_nothing_but_the_standard_library() -> None:
    imports = f"import sys; sys.path.insert(0, {str(Path(keeper.__file__).parents[1])!r}); import specagent.keeper"
    subprocess.run([sys.executable, "-I", "-S", "-c", imports], check=True)
