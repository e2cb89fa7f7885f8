"""Servers that somebody else started, one for each arm: looked at and asked, never started and never stopped."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from speccore import attached, engines
from speccore.canonical import manifest_hash, sha256_of
from speccore.errors import ArmNotSupported, BuildChanged, EngineNotHealthy
from speccore.inventory import Capabilities, ModelInfo, RuntimeInfo
from speccore.plain import one_line, read_json

from .asking import Address
from .config import RuntimeEntry
from .launch import Ended
from .ready import fetch

if TYPE_CHECKING:
    from .prepared import PreparedJob

_LOOK_TIMEOUT_S = 5.0
#: Characters of a build's or model's name. A file's path has fewer.
_LONGEST_NAME = 1000
#: Of what a server says of itself, what changes while it stands.
_PASSING = {"created", "id_task", "is_processing", "is_sleeping", "next_token", "permission", "prompt"}
#: Stands in the place of its log.
_NO_LOG = "specweb-agent: {url} was started by somebody else; its log is not here\n"


class NotSeen(ValueError):
    """A server can't be looked at; the message says why."""


@dataclass(frozen=True)
class Looked:
    """Servers of a runtime, with the models that only they tell of."""

    info: RuntimeInfo
    models: list[ModelInfo]


def address_of(url: str) -> Address:
    parts = urlsplit(url)
    return Address(parts.hostname or "", parts.port or 80)


def look(entry: RuntimeEntry) -> Looked:
    """Asks every server what it is. Raises :class:`NotSeen` naming the first that doesn't say."""
    module = engines.engine(entry.engine)
    said = {arm: _said(module, arm, url) for arm, url in entry.servers.items()}
    manifest = {arm: _identity(props) for arm, props in said.items()}
    builds = dict.fromkeys(one_line(build) for props in said.values() if (build := module.build_and_model(props)[0]))
    names = dict.fromkeys(name for props in said.values() if (name := module.build_and_model(props)[1]))
    info = RuntimeInfo(
        engine=entry.engine,
        version=" / ".join(builds) or "no build told",
        manifest_hash=manifest_hash(manifest),
        manifest=manifest,
        executable="",
        capabilities=Capabilities(dialect="attached", flags={}),
        kind="attached",
        servers=dict(entry.servers),
        oddities=oddities(entry.servers, list(builds), list(names)),
    )
    return Looked(info, [_served_model(name, said.values(), module) for name in names])


def _said(module: ModuleType, arm: str, url: str) -> dict[str, Any]:
    at = address_of(url)
    answers: dict[str, dict[str, Any]] = {}
    for path in module.LOADED_PATHS:
        try:
            status, text = fetch(at, path, _LOOK_TIMEOUT_S)
            answer = read_json(text) if status == 200 else None
        except (OSError, http.client.HTTPException) as error:
            raise NotSeen(f"the server of {arm!r}, {url}, can't be reached: {error}") from error
        except ValueError as error:
            raise NotSeen(f"the server of {arm!r}, {url}{path}, answers no JSON: {error}") from error
        if status in (401, 403):
            raise NotSeen(f"the server of {arm!r}, {url}{path}, wants a key ({status}), and none can be given")
        if not isinstance(answer, dict):
            raise NotSeen(f"the server of {arm!r}, {url}{path}, answers {status}: {text[:100]}")
        answers[path] = answer
    props: dict[str, Any] = {**_build(module, at), **module.loaded(answers)}
    for what, name in zip(("build", "model"), module.build_and_model(props)):
        if len(name) > _LONGEST_NAME:
            raise NotSeen(f"the server of {arm!r}, {url}, calls its {what} by a name of {len(name):,} characters: {one_line(name[:80])}…")
    return props


def _build(module: ModuleType, at: Address) -> dict[str, Any]:
    """The version, of an engine that tells it in a place of its own."""
    path = getattr(module, "BUILD_PATH", "")
    try:
        status, text = fetch(at, path, _LOOK_TIMEOUT_S) if path else (0, "")
        told = read_json(text) if status == 200 else {}
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return {"version": str(told["version"])} if isinstance(told, dict) and told.get("version") else {}


def _identity(props: Mapping[str, Any]) -> str:
    """Of what it says of itself; of no file."""
    return sha256_of({"told": _lasting(props)})


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _lasting(v) for k, v in value.items() if k not in _PASSING}
    return [_lasting(v) for v in value] if isinstance(value, list) else value


def oddities(servers: Mapping[str, str], builds: list[str], models: list[str]) -> list[str]:
    found = ["identified by what the servers say of themselves and by no file"]
    if len(builds) > 1:
        found.append(f"its servers are of different builds: {', '.join(builds)}")
    if len(models) > 1:
        found.append(f"its servers serve different models: {', '.join(models)}")
    far = [url for url in servers.values() if not _is_near(address_of(url).host)]
    if far:
        found.append(f"not on this machine: {', '.join(far)}; the network between is part of every time")
    return found


def _is_near(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _served_model(name: str, said: Any, module: ModuleType) -> ModelInfo:
    props = next(p for p in said if module.build_and_model(p)[1] == name)
    context, _ = module.context_and_slots(props)
    told = {"model": name, "chat_template": props.get("chat_template"), "context": context}
    return ModelInfo(
        alias=one_line(name.rstrip("/").rsplit("/", 1)[-1])[:200] or "unnamed",
        manifest_hash=sha256_of({"served": told}),
        path=name,
        format=attached.SERVED,
        size_bytes=0,
        chat_template_hash=sha256_of(props["chat_template"]) if props.get("chat_template") else "",
    )


@dataclass
class Standing:
    """A server that is asked, and nothing else. What it takes and how it ends is not ours to see: ``pid`` is 0."""

    pid: int = 0

    def ended(self, timeout_s: float = 0) -> Ended | None:
        return None

    def has_gone(self) -> bool:
        return False

    def kernel_oom(self) -> bool:
        return False

    def stop(self, hurry: threading.Event | None = None) -> Ended:
        """It stands on."""
        return Ended(None, "")

    def check_listener(self, at: Address) -> None:
        """Whoever answers there is who was named."""


@dataclass
class AttachedStart:
    """Takes the server that stands for an arm, if it is still the one that was advertised."""

    url: str
    arm: str
    told: str  # hash of what it said of itself when it was looked at
    module: ModuleType
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    shown: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        at = address_of(self.url)
        self.shown = {"env": {}, "host": at.host, "port": at.port, "kind": "attached"}

    def begin(self, folder: Path, log: Path, record: Path | None) -> tuple[Standing, Address]:
        """Raises :class:`EngineNotHealthy` if it doesn't answer, :class:`BuildChanged` if it says something else than before."""
        log.write_text(_NO_LOG.format(url=self.url), encoding="utf-8")
        try:
            now = _identity(_said(self.module, self.arm, self.url))
        except NotSeen as error:
            raise EngineNotHealthy(
                str(error), remedy="Start that server again, or correct its address under servers.", url=self.url
            ) from error
        if now != self.told:
            raise BuildChanged(
                f"the server of {self.arm!r}, {self.url}, says something else of itself than when it was advertised: another build, model or setting",
                remedy="Let the agent look again (start it anew), then submit the experiment again.",
                url=self.url,
            )
        return Standing(), address_of(self.url)


def start_of(job: PreparedJob, arm: str, argv: list[str], more: object) -> AttachedStart:
    """``argv``: what stands in the place of the command. Raises :class:`ArmNotSupported` where further words would be needed."""
    info = job.runtime.info
    if more:
        raise ArmNotSupported(
            f"arm {arm!r}: an attached server takes no further flags", remedy="Let the agent start the engine for this.", arm=arm
        )
    return AttachedStart(info.servers[arm], arm, info.manifest[arm], job.dialect, argv)
