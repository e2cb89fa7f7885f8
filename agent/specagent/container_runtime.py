"""An engine build in a container image: which image it is, and what its engine can do, asked in a throw-away container."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from speccore import engines
from speccore.canonical import manifest_hash
from speccore.engines import Asked
from speccore.inventory import Capabilities, RuntimeInfo

from . import containers, probing
from .config import RuntimeEntry
from .container_removal import agent_label, remove_attempt
from .docker_engine import ContainerEngineUnusable, address_of, connected, explained
from .filecache import FileCache
from .probing import Answer, RuntimeBroken

_DIGEST = r"sha256:[0-9a-f]{64}"
_BY_DIGEST = re.compile(rf"^(?:[^@\s]+@)?{_DIGEST}$")
#: vLLM imports all of itself before it prints its help.
_ASK_TIMEOUT_S = 300.0


#: What the first process of a container says if there is no such program.
_NOT_RUN = re.compile(r"^\[FATAL tini \(\d+\)\] exec \S+ failed: (.+)$", re.MULTILINE)
#: While it is asked it neither reports nor downloads. The width keeps a help's lines as they are anywhere.
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "COLUMNS": "80"}


#: Code that an image brings is part of its digest; and where llama-server listens every command says by itself.
_HARMLESS_IN_IMAGES = ("LD_PRELOAD", "LD_AUDIT", "GGML_BACKEND_PATH", "PYTHON*", "LLAMA_ARG_HOST", "LLAMA_ARG_PORT")


@dataclass(frozen=True)
class Looked:
    """A build in an image: what is told of it, and where it is started."""

    info: RuntimeInfo
    place: containers.Place


def look(entry: RuntimeEntry, cache: FileCache) -> Looked:
    """Nothing is pulled. Raises :class:`RuntimeBroken`."""
    try:
        address = address_of(entry.docker)
        with connected(address) as client:
            return _look(client, address, entry, cache)
    except ContainerEngineUnusable as error:
        raise RuntimeBroken(f"{entry.image}: {error.message}", error.remedy) from error


def check_variables(engine: str, variables: Iterable[str]) -> None:
    """Raises :class:`RuntimeBroken` for a variable (``NAME=value``) of an image that would change the engine past its command."""
    never: Mapping[str, str] = engines.engine(engine).NEVER_ENVIRONMENT
    for name in (v.partition("=")[0] for v in variables):
        why = next((why for known, why in never.items() if fnmatchcase(name, known)), "")
        if why and not any(fnmatchcase(name, harmless) for harmless in _HARMLESS_IN_IMAGES):
            raise RuntimeBroken(f"the image sets {name}, which {why}", f"Take an image that doesn't set {name}.")


def _look(client: Any, address: str, entry: RuntimeEntry, cache: FileCache) -> Looked:
    image = _image(client, entry.image)
    config = image.get("Config") or {}
    place = containers.Place(
        docker=address, image_id=str(image["Id"]), user=str(config.get("User") or ""), limits=entry.limits, gpus=tuple(entry.gpus)
    )
    check_variables(entry.engine, config.get("Env") or [])
    asked: Asked = engines.engine(entry.engine).ASKED
    executable = _executable(entry, config.get("Entrypoint") or [], asked)
    digest = entry.image.rpartition("sha256:")[2]
    manifest = {f"image:{executable}": digest}
    env = {**_QUIET, **entry.env}
    key = f"{place.image_id} {executable} {sorted(entry.env.items())}"
    version = _remembered(cache, f"{key} version", lambda: _ask(client, place, entry.engine, [executable, *asked.version], env))
    help_text = _remembered(cache, f"{key} help", lambda: _ask(client, place, entry.engine, [executable, *asked.help], env))
    name = f"{executable} of {entry.image}"
    if help_text.how:
        raise RuntimeBroken(f"{name} {help_text.how} at --help", _remedy(entry, help_text.how))
    capabilities = engines.engine(entry.engine).capabilities(help_text.text)
    if lacking := [flag for flag in asked.needed if flag not in capabilities.flags]:
        raise RuntimeBroken(
            f"{name} is no {entry.engine}: its help lists no {' and no '.join(lacking)}",
            "Name the engine's executable in the image under path.",
        )
    devices = _ask(client, place, entry.engine, [executable, *asked.devices], env) if asked.devices else Answer("")
    words, commit = _version_words("" if version.how else version.text)
    info = RuntimeInfo(
        engine=entry.engine,
        version=words,
        source_commit=commit,
        backend=_backend(entry, devices.text, words),
        manifest_hash=manifest_hash(manifest),
        manifest=manifest,
        executable=executable,
        capabilities=capabilities,
        kind="container",
        image=entry.image,
        oddities=_oddities(entry.engine, version, capabilities),
    )
    return Looked(info, place)


def _image(client: Any, reference: str) -> dict[str, Any]:
    """Raises :class:`RuntimeBroken` for one that is named by a tag, or isn't here."""
    from docker.errors import APIError

    try:
        image: dict[str, Any] = client.inspect_image(reference)
    except APIError as error:
        if getattr(error.response, "status_code", 0) != 404:
            raise RuntimeBroken(
                f"{reference}: {explained(error)}", "Write it as name@sha256:digest, as `docker images --digests` lists it."
            ) from error
        if not _BY_DIGEST.match(reference):
            raise RuntimeBroken(
                f"{reference} names an image by a tag, and a tag may mean another one tomorrow; there is none of that tag here",
                f"docker pull {reference}, then name it by the digest that `docker images --digests` lists: name@sha256:…",
            ) from error
        if "@" not in reference:
            raise RuntimeBroken(
                f"no image {reference[:19]}… is here",
                "docker load or docker import it, or name one that `docker images --no-trunc` lists.",
            ) from error
        raise RuntimeBroken(f"the image {reference} is not here, and nothing is pulled on its own", f"docker pull {reference}") from error
    if not _BY_DIGEST.match(reference):
        by_digest = next(iter(image.get("RepoDigests") or []), image["Id"])
        raise RuntimeBroken(
            f"{reference} names an image by a tag, and a tag may mean another one tomorrow",
            f"The one that it means now is  image: {by_digest}",
        )
    return image


def _executable(entry: RuntimeEntry, entrypoint: Sequence[str], asked: Asked) -> str:
    """The owner's; else the program that the image starts by itself, if that is the engine."""
    if entry.path:
        return str(entry.path)
    if entrypoint and PurePosixPath(entrypoint[0]).name == asked.program:
        return str(entrypoint[0])
    starts = f"starts {' '.join(entrypoint)!r}" if entrypoint else "starts nothing by itself"
    raise RuntimeBroken(f"{entry.image} {starts}, which is no {asked.program}", f"Name under path where {asked.program} lies in the image.")


def _remembered(cache: FileCache, name: str, ask: Any) -> Answer:
    """An image never changes, so that it is asked once. What failed is asked again."""
    known = cache.recall(name)
    if isinstance(known, str):
        return Answer(known)
    answer: Answer = ask()
    if not answer.how:
        cache.remember(name, answer.text)
    return answer


def _ask(client: Any, place: containers.Place, engine: str, argv: Sequence[str], env: dict[str, str]) -> Answer:
    """Runs a program of the image once, under the same restrictions as the engine and without any network."""
    from docker.errors import APIError

    attempt = str(uuid.uuid4())
    labels = {containers.ATTEMPT: attempt, containers.LOOK: "1", containers.AGENT: agent_label()}
    user = containers.user_for(place.user, [], (os.getuid(), os.getgid()))
    made = containers.body(place, engine, argv, containers.environment(env), user=user, network="none", labels=labels)
    try:
        container = client.create_container_from_config(made, f"specweb-look-{attempt}")["Id"]
        out: list[tuple[bytes | None, bytes | None]] = []
        stream = client.attach(container, stdout=True, stderr=True, stream=True, demux=True)
        reader = threading.Thread(target=take, args=(stream, out), daemon=True)
        reader.start()
        client.start(container)
        reader.join(_ASK_TIMEOUT_S)
        if reader.is_alive():
            return Answer("", f"doesn't end within {_ASK_TIMEOUT_S:g} s")
        state = client.inspect_container(container)["State"]
        while state["Running"]:
            time.sleep(0.02)
            state = client.inspect_container(container)["State"]
        printed, complained = (b"".join(part[i] or b"" for part in out).decode("utf-8", "replace") for i in (0, 1))
        code = int(state["ExitCode"])
        if not_run := _NOT_RUN.search(complained):
            return Answer("", f"can't be started: {not_run[1]}")
        how = probing.ended(128 - code if code > 128 else code, complained or printed)
        return Answer(printed if printed.strip() else complained, "was ended at its memory limit" if state.get("OOMKilled") else how)
    except APIError as error:
        return Answer("", f"can't be started: {explained(error)}")
    finally:
        remove_attempt(place.docker, attempt)


def take(stream: Iterable[tuple[bytes | None, bytes | None]], out: list[tuple[bytes | None, bytes | None]]) -> None:
    """To its end, and keeps as much of it as of any program that is asked."""
    n_bytes = 0
    for part in stream:
        if n_bytes < probing.MOST_BYTES:
            out.append(part)
            n_bytes += sum(len(data or b"") for data in part)


def _remedy(entry: RuntimeEntry, how: str) -> str:
    if "could not select device driver" in how:
        return "Install NVIDIA's container toolkit and restart the container engine, or leave gpus out."
    if "CPU" in how:
        return "Correct limits.cpus of this build: it names processors that this machine has not."
    if "docker-init" in how:
        return "Install docker-init beside the container engine (Debian: in docker.io; elsewhere the package tini)."
    if "memory limit" in how:
        return "Raise limits.memory_mib of this build in the agent's configuration."
    if "can't be started" in how:
        return "Name under path where the engine's executable lies in the image, and see with `docker run` whether it starts."
    return "See with `docker run` why, or take another image."


def _backend(entry: RuntimeEntry, devices: str, version: str) -> str:
    """What the first device is that llama-server lists; of vLLM what its version ends with, else by whether it gets GPUs."""
    if listed := re.search(r"^\s+([A-Za-z]+)\d+:", devices, re.MULTILINE):
        return listed[1].lower()
    if entry.engine == "vllm":
        local = re.search(r"\+(?:.*\.)?(cpu|rocm|xpu|tpu)", version)
        return local[1] if local else "cuda" if entry.gpus else "cpu"
    return "cpu"


def _oddities(engine: str, version: Answer, capabilities: Capabilities) -> list[str]:
    found = [*probing.odd_version(version), *(probing.odd_help(capabilities) if engines.engine(engine).ASKED.packaged == "program" else [])]
    if os.geteuid() != 0:
        found.append(
            "what listens on every address of this machine can be reached from its container: only an agent that is root closes that"
        )
    return found


def _version_words(text: str) -> tuple[str, str]:
    from .runtimes import version_words  # runtimes asks this module for images

    return version_words(text)
