"""Whether engines can run in containers here, and on which GPUs, for the person who sets an agent up."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .docker_engine import USUAL_SOCKET
from .findings import Finding

_TIMEOUT_S = 5.0
_SUBJECT = "container engine"
#: What lets Docker hand GPUs to a container, by the program that it calls for it.
_TOOLKIT = ("nvidia-container-runtime-hook", "nvidia-container-runtime", "nvidia-ctk")
_NO_TOOLKIT = "Install NVIDIA's container toolkit and restart the container engine; builds without gpus run on the processor."


def sockets(configured: list[str]) -> list[Path]:
    """Those that the owner's builds name, else what DOCKER_HOST names, else the usual one."""
    addresses = [a for a in configured if a] or [os.environ.get("DOCKER_HOST") or USUAL_SOCKET]
    return [Path(a.removeprefix("unix://")) for a in dict.fromkeys(addresses) if a.startswith("unix://")]


def container_engine(
    docker: Path,
    *,
    wanted: bool = False,
    has_nvidia: bool = False,
    is_root: bool | None = None,
    find: Callable[[str], str | None] = shutil.which,
) -> list[Finding]:
    """``wanted``: whether the configuration names an image; ``has_nvidia``: whether a card of NVIDIA's is seen; ``is_root``: None for this program's own."""
    if not os.path.exists(docker):  # unlike Path.exists() also of a name that is too long for one
        if wanted:
            remedy = "Install Docker and start it, or name its socket under docker or in DOCKER_HOST."
            return [Finding("warn", _SUBJECT, f"none at {docker}, and the configuration names images", remedy)]
        return [Finding("ok", _SUBJECT, "none: engines run as processes")]
    try:
        version, info = _get(docker, "/version"), _get(docker, "/info")
        name = f"Docker {version['Version']}"
    except PermissionError:
        remedy = "Let this user use it (group docker). Engines run as processes without it."
        return [Finding("warn", _SUBJECT, f"Docker is here, and {docker} is closed to this user", remedy)]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        remedy = "Start it, or let this user use it (group docker). Engines run as processes without it."
        return [Finding("warn", _SUBJECT, f"Docker is here and doesn't answer: {error}", remedy)]
    if importlib.util.find_spec("docker") is None:
        text = f"{name} answers; engines run as processes until the Docker SDK is installed: pip install 'specweb-agent[docker]'"
        return [Finding("ok", _SUBJECT, text)]
    found = [Finding("ok", _SUBJECT, f"{name} answers: engines can run in its containers, images named by digest", details=_details(info))]
    if not (os.geteuid() == 0 if is_root is None else is_root):
        text = "an engine in a container could reach what listens on every address of this machine: only an agent that is root closes that"
        found.append(
            Finding("warn", _SUBJECT, text, "Run the agent as root, or let this machine's services listen on their own addresses.")
        )
    if "memory" in _lacking(info):
        text = "the kernel bounds no container's memory: limits.memory_mib does nothing"
        found.append(Finding("warn", _SUBJECT, text, "Boot with cgroup_enable=memory swapaccount=1."))
    if has_nvidia:
        has_toolkit = "nvidia" in (info.get("Runtimes") or {}) or any(find(program) for program in _TOOLKIT)
        text = "NVIDIA's toolkit is here: containers can get GPUs" if has_toolkit else "containers get no GPU: NVIDIA's toolkit is missing"
        found.append(Finding("ok" if has_toolkit else "warn", _SUBJECT, text, "" if has_toolkit else _NO_TOOLKIT))
    return found


def _details(info: dict[str, Any]) -> dict[str, Any]:
    return {k: info.get(k) for k in ("Driver", "CgroupDriver", "CgroupVersion", "SecurityOptions", "DefaultRuntime") if k in info}


def _lacking(info: dict[str, Any]) -> list[str]:
    return ["memory"] if info.get("MemoryLimit") is False else []


def _get(docker: Path, path: str) -> dict[str, Any]:
    """Standard library only: it tells what is there also where the SDK is missing."""
    connection = http.client.HTTPConnection("localhost", timeout=_TIMEOUT_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(_TIMEOUT_S)
        connection.sock.connect(str(docker))
        connection.request("GET", path)
        told: dict[str, Any] = json.loads(connection.getresponse().read())
        return told
    finally:
        connection.close()
