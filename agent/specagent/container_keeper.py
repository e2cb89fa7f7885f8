"""The process that stands for a container under the keeper: runs it attached, passes its log on, and removes it at the end.

A container is the container engine's child and no descendant of the keeper; this process is. When the keeper ends it, or
the container ends by itself, container and network are removed, also when the agent has been killed. The order and what
comes of it are JSON files in the folder that the only argument names:

``order.json``: {docker, attempt, container, network, grace_s, short_grace_s} · ``standing.json``: {id, pid, address, host_services}
once it runs · ``failed.json``: {what, why} if it can't · ``ended.json``: {exit_code, oom_killed, removed, why}, the last only where not all was removed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .container_removal import remove_attempt
from .docker_engine import ContainerEngineUnusable, connected, explained

ORDER, STANDING, FAILED, ENDED = "order.json", "standing.json", "failed.json", "ended.json"
_KILL_WAIT_S = 10.0
_RULE_TIMEOUT_S = 10.0


class _Wishes:
    """What signals ask for: TERM ends the container, USR1 says that somebody waits for it."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.stop = self.hurry = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGUSR1, self._hurry)

    def _stop(self, *_: object) -> None:
        self.stop = True
        self.wake.set()

    def _hurry(self, *_: object) -> None:
        self.stop = self.hurry = True
        self.wake.set()


def main(where: str) -> int:
    """``where``: the folder of the order. Ends when container and network are removed, or that has failed, which is told there."""
    from docker.errors import APIError

    folder = Path(where)
    wishes = _Wishes()
    order = json.loads((folder / ORDER).read_text())
    ended: dict[str, Any] = {"exit_code": None, "oom_killed": False}
    try:
        with connected(order["docker"]) as client:
            if not wishes.stop:
                container, log = _begin(client, order, folder, wishes)
                _watch(client, container, log, order, wishes)
                ended |= _how(client, container)
    except APIError as error:
        _tell(folder / FAILED, {"what": "refused", "why": explained(error)})
    except ContainerEngineUnusable as error:
        _tell(folder / FAILED, {"what": "unusable", "why": error.message})
    except Exception as error:  # whatever it is, the container must not be left
        _tell(folder / FAILED, {"what": "fault", "why": f"{type(error).__name__}: {error}"})
    try:
        remove_attempt(order["docker"], order["attempt"])
        ended |= {"removed": True}
    except (ContainerEngineUnusable, APIError) as error:
        ended |= {"removed": False, "why": str(error)}
    _tell(folder / ENDED, ended)
    return 0


def _begin(client: Any, order: dict[str, Any], folder: Path, wishes: _Wishes) -> tuple[str, threading.Thread]:
    client._result(client._post_json(client._url("/networks/create"), data=order["network"]), True)
    container = str(client.create_container_from_config(order["container"], order["network"]["Name"])["Id"])
    # Attached before it runs, so that no line of its log is missed.
    stream = client.attach(container, stdout=True, stderr=True, stream=True)
    log = threading.Thread(target=_pass_on, args=(stream, wishes), daemon=True)
    log.start()
    client.start(container)
    state = client.inspect_container(container)
    pid = int(state["State"]["Pid"])
    networks = state["NetworkSettings"]["Networks"]
    at = networks[order["network"]["Name"]]["IPAddress"] if order["network"]["Name"] in networks else ""
    _tell(folder / STANDING, {"id": container, "pid": pid, "address": at, "host_services": _close_host_services(pid)})
    return container, log


def _pass_on(stream: Any, wishes: _Wishes) -> None:
    try:
        for data in stream:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
    finally:
        wishes.wake.set()  # the container has ended, or can't be heard any more


def _close_host_services(pid: int) -> str:
    """A bridge's own address is this machine, so that what listens there on every address could be reached from within.

    The rule stands in the container's network namespace and goes with it: it starts no connection but to itself. Returns
    "closed", or why it could not be done.
    """
    if not pid:
        return "open: it has ended"
    if os.geteuid() != 0:
        return "open: only root can close them"
    rule = ["-A", "OUTPUT", "!", "-o", "lo", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
    try:
        done = subprocess.run(
            ["nsenter", "-t", str(pid), "-n", "iptables", "-w", *rule],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RULE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"open: {error}"
    return "closed" if done.returncode == 0 else f"open: {(done.stderr or done.stdout).strip()[:200]}"


def _watch(client: Any, container: str, log: threading.Thread, order: dict[str, Any], wishes: _Wishes) -> None:
    """Until the container has ended by itself or by TERM, by KILL after the grace time."""
    while log.is_alive() and not wishes.stop:
        wishes.wake.wait()
        wishes.wake.clear()
    if not log.is_alive() and not _runs(client, container):
        return
    _signal(client, container, "SIGTERM")
    began = time.monotonic()
    while log.is_alive():
        grace_s = order["short_grace_s"] if wishes.hurry else order["grace_s"]
        left = began + grace_s - time.monotonic()
        if left <= 0:
            break
        wishes.wake.wait(min(left, 0.05))
    _signal(client, container, "SIGKILL")
    log.join(_KILL_WAIT_S)


def _signal(client: Any, container: str, name: str) -> None:
    from docker.errors import APIError

    try:
        client.kill(container, name)
    except APIError:  # it has ended
        return


def _runs(client: Any, container: str) -> bool:
    """The end of the log comes a moment before the end of the container."""
    deadline = time.monotonic() + 1.0
    while running := bool(client.inspect_container(container)["State"]["Running"]):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return running


def _how(client: Any, container: str) -> dict[str, Any]:
    deadline = time.monotonic() + _KILL_WAIT_S
    state = client.inspect_container(container)["State"]
    while state["Running"] and time.monotonic() < deadline:
        time.sleep(0.02)
        state = client.inspect_container(container)["State"]
    code = None if state["Running"] else int(state["ExitCode"])
    # told as a shell tells it; of a process the number is negative, and evidence is to be read in one way
    signalled = code is not None and 128 < code <= 128 + signal.NSIG
    return {"exit_code": 128 - code if code is not None and signalled else code, "oom_killed": bool(state.get("OOMKilled"))}


def _tell(path: Path, message: dict[str, Any]) -> None:
    """Whole or not at all: the agent reads it while this process runs. It may have gone with its folder."""
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(message), encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        print(f"{path.name}: {error.strerror}", file=sys.stderr)  # noqa: T201 - into the engine's log, which is all that is left
