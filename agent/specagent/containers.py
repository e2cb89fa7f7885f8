"""What a container of this agent is: its restrictions, mounts, labels and user, as the container engine is asked for it. Pure."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccore import engines
from speccore.inventory import ModelInfo

from .config import Limits

#: Labels of all that this program makes in a container engine, so that whatever is left can be told from what is others'.
ATTEMPT, RECORDS, AGENT, LOOK = "specweb.attempt", "specweb.records", "specweb.agent", "specweb.look"

#: Every container has a network of its own, so that the port need not differ.
PORT = 8080
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside of the container's own network
TARGET, DRAFT = "/models/target", "/models/draft"
SCRATCH = "/tmp"  # noqa: S108 - inside of the container
NOBODY = "65534:65534"
_OOM_SCORE = 500  # as the keeper gives it to processes: the engine goes before the agent that reports it

#: What an engine finds in its environment beside what the image and the owner set. The user need not be known to the image.
_ENVIRONMENT = {"HOME": SCRATCH, "TMPDIR": SCRATCH, "USER": "specweb", "LOGNAME": "specweb"}


@dataclass(frozen=True)
class Place:
    """Where and how a build's containers run. ``docker``: the engine's address; ``user``: who the image says it runs as."""

    docker: str
    image_id: str
    user: str
    limits: Limits
    gpus: Sequence[str] = ()


@dataclass(frozen=True)
class Mount:
    """A file of this host, seen in the container and never written there."""

    source: str
    target: str


def path_inside(model: ModelInfo, folder: str) -> str:
    """Where the engine finds a model: a file (of a split model the first part) in the folder, or the folder itself."""
    return f"{folder}/{Path(model.path).name}" if _root(model) != Path(model.path) else folder


def mounts_of(model: ModelInfo, folder: str) -> list[Mount]:
    """Each of the model's own files and no other. Links are followed here: a store of models links into folders that aren't mounted."""
    return [Mount(str((_root(model) / name).resolve()), f"{folder}/{name}") for name in sorted(model.manifest)]


def _root(model: ModelInfo) -> Path:
    path = Path(model.path)
    return path if path.name not in model.manifest else path.parent


def user_for(image_user: str, mounts: Iterable[Mount], agent: tuple[int, int]) -> str:
    """``uid:gid`` or a name of the image's. Never more than it takes to read the models; ``agent``: this program's own user and group."""
    if agent[0] != 0:
        return f"{agent[0]}:{agent[1]}"  # reads what the agent can read
    owners = {(st.st_uid, st.st_gid) for m in mounts if not (st := Path(m.source).stat()).st_mode & stat.S_IROTH}
    if owners:
        return "{}:{}".format(*min(owners))  # the container's root has no capability either, so it reads its own files only
    return image_user if image_user and image_user.split(":")[0] not in ("0", "root") else NOBODY


def environment(owner: Mapping[str, str], rendered: Mapping[str, str] = {}) -> dict[str, str]:
    """What is set beside the image's own."""
    return {**_ENVIRONMENT, **owner, **rendered}


def body(
    place: Place,
    engine: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    user: str,
    network: str,
    mounts: Iterable[Mount] = (),
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """A container's creation as the engine's API takes it. ``network``: the name of its own, or "none"."""
    limits = place.limits
    # what a Python package compiles at run time it loads from the scratch folder
    code = "exec" if engines.engine(engine).ASKED.packaged == "python" else "noexec"
    host: dict[str, Any] = {
        "NetworkMode": network,
        "Dns": ["127.0.0.1"],  # else the engine's own resolver would ask the world on the container's behalf
        "ReadonlyRootfs": True,
        "Tmpfs": {SCRATCH: f"rw,nosuid,nodev,{code},size={limits.scratch_mib}m,mode=1777{_owned_by(user)}"},
        "ShmSize": limits.shm_mib << 20,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": limits.pids,
        "OomScoreAdj": _OOM_SCORE,
        "Init": True,  # a first process that passes signals on and buries the dead, which engines don't
        "LogConfig": {"Type": "none", "Config": {}},  # the log goes to the agent, which keeps so much of it and no more
        "RestartPolicy": {"Name": "no"},
        "Mounts": [{"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": True} for m in mounts],
    }
    if limits.memory_mib is not None:
        host["Memory"] = host["MemorySwap"] = limits.memory_mib << 20  # the second is the sum with swap: none
    if limits.cpus:
        host["CpusetCpus"] = limits.cpus
    if place.gpus:
        host["DeviceRequests"] = [_gpu_request(place.gpus)]
    return {
        "Image": place.image_id,
        "Entrypoint": [argv[0]],
        "Cmd": list(argv[1:]),
        "Env": [f"{name}={value}" for name, value in env.items()],
        "User": user,
        "WorkingDir": SCRATCH,
        "Labels": dict(labels),
        "HostConfig": host,
    }


def _gpu_request(gpus: Sequence[str]) -> dict[str, Any]:
    """``gpus``: UUIDs or numbers, or "all" alone."""
    which = {"Count": -1} if list(gpus) == ["all"] else {"DeviceIDs": list(gpus)}
    return {"Driver": "", "Capabilities": [["gpu"]], **which}


def _owned_by(user: str) -> str:
    """An image whose own folder of that name is closed to others would close the scratch folder too."""
    uid, _, gid = user.partition(":")
    return f",uid={uid},gid={gid}" if uid.isdigit() and gid.isdigit() else ""


def network_body(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """A bridge of one container's own without a way out; this machine reaches it at the container's address."""
    return {"Name": name, "Driver": "bridge", "Internal": True, "CheckDuplicate": True, "Labels": dict(labels)}


def told(made: Mapping[str, Any], place: Place, image: str) -> dict[str, Any]:
    """What the evidence tells of a container that is asked for so."""
    host = made["HostConfig"]
    return {
        "image": image,
        "image_id": place.image_id,
        "user": made["User"],
        "limits": {
            "memory_bytes": host.get("Memory"),
            "cpus": host.get("CpusetCpus", ""),
            "pids": host["PidsLimit"],
            "shm_bytes": host["ShmSize"],
        },
        "mounts": [{"source": m["Source"], "target": m["Target"], "read_only": m["ReadOnly"]} for m in host["Mounts"]],
        "tmpfs": host["Tmpfs"],
        "gpus": list(place.gpus),
        "read_only_root": host["ReadonlyRootfs"],
        "cap_drop": host["CapDrop"],
        "security": host["SecurityOpt"],
        "network": {"name": host["NetworkMode"], "internal": True},
    }
