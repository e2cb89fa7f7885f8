"""Removes containers and networks of this agent: found by their labels, and proven to be gone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import processes
from .containers import AGENT, ATTEMPT, LOOK, RECORDS
from .docker_engine import ContainerEngineUnusable, connected

_WAIT_S = 10.0


def agent_label() -> str:
    """Which agent made it: boot, pid and start time, so that a recycled pid is never taken for it."""
    pid = os.getpid()
    return f"{processes.boot_id()} {pid} {processes.start_time(pid)}"


def remove_attempt(address: str, attempt: str) -> list[int]:
    """Removes all that carries the attempt's label; returns the pids that ran.

    Raises :class:`ContainerEngineUnusable`, also if something stays.
    """
    with connected(address) as client:
        return _remove(client, f"{ATTEMPT}={attempt}")


def remove_abandoned(address: str, records: Path, lives: Callable[[str], bool]) -> list[int]:
    """Removes what agents of the same state folder left, and what is left of looking at images.

    ``lives``: whether the agent runs that a label names.
    """
    ended: list[int] = []
    with connected(address) as client:
        for label in (f"{RECORDS}={records}", LOOK):
            things = [*_containers(client, label), *_networks(client, label)]
            for labels in (thing["Labels"] or {} for thing in things):
                if not lives(labels.get(AGENT, "")) and labels.get(ATTEMPT):
                    ended += _remove(client, f"{ATTEMPT}={labels[ATTEMPT]}")
    return ended


def _remove(client: Any, label: str) -> list[int]:
    from docker.errors import APIError

    pids: list[int] = []
    deadline = time.monotonic() + _WAIT_S
    said = ""
    while (containers := _containers(client, label)) or (networks := _networks(client, label)):
        for container in containers:
            with contextlib.suppress(APIError):  # gone meanwhile
                pid = client.inspect_container(container["Id"])["State"].get("Pid", 0)
                pids += [pid] if pid and pid not in pids else []
            try:
                client.remove_container(container["Id"], force=True, v=True)
            except APIError as error:
                said = str(error.explanation or error)
        for network in [] if containers else networks:
            try:
                client.remove_network(network["Id"])
            except APIError as error:
                said = str(error.explanation or error)
        if time.monotonic() > deadline:
            raise ContainerEngineUnusable(
                f"the container engine does not remove what is labelled {label}: {said}", remedy=f"docker ps -a --filter label={label}"
            )
        time.sleep(0.02)
    return pids


def _containers(client: Any, label: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.containers(all=True, filters={"label": label})
    return found


def _networks(client: Any, label: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.networks(filters={"label": label})
    return found
