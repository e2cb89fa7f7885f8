"""The embedded servers: they answer, they never outlive their supervisor, and they come back after any death."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
import redis

from demo.stack import Stack, StackError, _processes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home():
    # Not tmp_path: as root its parents are closed to the servers' user. The space is on purpose.
    parent = Path(tempfile.mkdtemp(prefix="specweb test "))
    parent.chmod(0o755)
    yield parent / "home"
    shutil.rmtree(parent)


def servers(home: Path) -> list[int]:
    return _processes("postgres", home / "postgres" / "data") + _processes("valkey-server", home / "valkey")


def gone(home: Path, within_s: float = 10) -> bool:
    until = time.monotonic() + within_s
    while servers(home) and time.monotonic() < until:
        time.sleep(0.05)
    return not servers(home)


def supervise(home: Path) -> tuple[subprocess.Popen, dict]:
    process = subprocess.Popen([sys.executable, "-m", "demo.stack", "--home", str(home)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())


def rows(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (x int)")
        connection.execute("INSERT INTO t VALUES (1)")
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]


def test_both_servers_answer_keep_data_and_leave_nothing(home):
    for expected in (1, 2):
        with Stack(home) as addresses:
            assert rows(addresses.database_url) == expected
            socket = addresses.broker_url.removeprefix("redis+socket://").split("?")[0]
            assert redis.Redis(unix_socket_path=socket).ping()
            assert len(socket) < 60
        assert not servers(home)
        assert not Path(socket).parent.exists()


def test_celery_can_use_the_broker(home):
    from kombu import Connection

    with Stack(home) as addresses, Connection(addresses.broker_url) as connection:
        queue = connection.SimpleQueue("q")
        queue.put({"n": 7})
        assert queue.get(timeout=5).payload == {"n": 7}


def test_the_servers_run_unprivileged_and_no_parent_folder_is_opened(home):
    before = home.parent.stat().st_mode
    expected = os.geteuid() or pwd.getpwnam("nobody").pw_uid
    with Stack(home):
        assert len(servers(home)) >= 2
        assert {os.stat(f"/proc/{pid}").st_uid for pid in servers(home)} == {expected}
        assert home.stat().st_uid == expected
    assert home.parent.stat().st_mode == before


def test_a_home_that_the_servers_cannot_reach_is_refused_and_left_closed(home):
    # As root the service user can't enter; as an ordinary user the folder can't be made.
    home.parent.chmod(0o700 if os.geteuid() == 0 else 0o500)
    mode = home.parent.stat().st_mode
    with pytest.raises(StackError, match="SPECWEB_HOME"):
        Stack(home).start()
    assert home.parent.stat().st_mode == mode
    home.parent.chmod(0o755)


def test_a_second_stack_in_the_same_home_is_refused(home):
    with Stack(home) as addresses:
        with pytest.raises(StackError, match=f"in use by process {os.getpid()}"):
            Stack(home).start()
        assert rows(addresses.database_url) == 1  # the first one is untouched


def test_sigterm_stops_the_supervisor_in_order(home):
    process, addresses = supervise(home)
    assert rows(addresses["database_url"]) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert not servers(home)
    assert "database system is shut down" in (home / "logs/postgres.log").read_text()


def test_a_killed_supervisor_takes_its_servers_along_and_the_next_start_works(home):
    process, addresses = supervise(home)
    socket_folder = Path(addresses["database_url"].split("host=")[1])
    process.kill()
    process.wait()
    assert gone(home)
    assert socket_folder.exists()
    with Stack(home) as again:
        assert not socket_folder.exists()  # what the killed one left is cleared away
        assert rows(again.database_url) == 1


def test_supervisor_and_servers_killed_at_once_are_recovered(home):
    process, addresses = supervise(home)
    rows(addresses["database_url"])
    postmaster = int((home / "postgres/data/postmaster.pid").read_text().split()[0])
    process.send_signal(signal.SIGSTOP)
    os.kill(postmaster, signal.SIGKILL)
    process.kill()
    process.wait()
    with Stack(home) as again, psycopg.connect(again.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_stale_pid_file_that_names_a_live_stranger_does_not_stop_the_start_nor_hurt_the_stranger(home):
    with Stack(home):
        pid_file = home / "postgres/data/postmaster.pid"
        content = pid_file.read_text()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        pid_file.write_text(content.replace(content.split()[0], str(stranger.pid), 1))
        with Stack(home) as addresses:
            assert rows(addresses.database_url) == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_that_dies_is_named_with_its_log(home):
    stack = Stack(home)
    stack.start()
    try:
        assert stack.dead() == ""
        os.kill(_processes("valkey-server", home / "valkey")[0], signal.SIGKILL)
        until = time.monotonic() + 5
        while not stack.dead() and time.monotonic() < until:
            time.sleep(0.05)
        assert "valkey ended with code -9" in stack.dead()
    finally:
        stack.stop()
    assert not servers(home)


def test_a_start_that_fails_says_why_and_leaves_nothing(home):
    with Stack(home):
        pass
    config = home / "postgres/data/postgresql.conf"
    config.write_text(config.read_text() + "\nno_such_setting = 1\n")
    with pytest.raises(StackError, match="no_such_setting"):
        Stack(home).start()
    assert not servers(home)


def test_data_of_another_major_version_is_refused(home):
    with Stack(home):
        pass
    (home / "postgres/data/PG_VERSION").write_text("9\n")
    with pytest.raises(StackError, match="made by PostgreSQL 9"):
        Stack(home).start()
