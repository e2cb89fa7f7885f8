"""The host owner's own configuration: what this machine offers and what it allows, read from one YAML file."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from speccore import engines
from speccore.errors import HostError
from speccore.plain import whole_text
from speccore.spec_rules import yaml_word
from speccore.spec_words import NAME_PATTERN, TEXT_PATTERN
from speccore.yamltext import read_yaml

CONFIG_NAME = "specweb-agent.yaml"
_MOST_MIB = 1 << 30


class ConfigInvalid(HostError):
    code = "config_invalid"
    retry = False
    remedy = "Correct the agent's configuration file; agent/config.example.yaml shows every key."


class _Owned(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Owned):
    """What a container may take."""

    memory_mib: int | None = Field(default=None, ge=64, le=_MOST_MIB)
    cpus: str = Field(default="", pattern=r"^(\d+(-\d+)?(,\d+(-\d+)?)*)?$", description="the CPUs that it may use, e.g. 0-3,8; empty: all")
    pids: int = Field(default=4096, ge=16, le=1 << 22)
    shm_mib: int = Field(default=1024, ge=64, le=_MOST_MIB, description="shared memory, which workers of one engine talk through")
    scratch_mib: int = Field(default=1024, ge=16, le=_MOST_MIB, description="of each folder that can be written, in memory")


_OF_CONTAINERS: dict[str, Any] = {"docker": "", "gpus": [], "limits": Limits()}


def server_address(arm: str, url: str) -> str:
    """``http://HOST:PORT`` of a server that stands for an arm. Raises ValueError in words."""
    if len(arm) > 80 or not re.match(NAME_PATTERN, arm):
        raise ValueError(f"{arm[:80]!r} can be no arm's name: letters, digits, spaces and . _ + / @ -, 80 at the most")
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise ValueError(f"the address of {arm!r} is none: {error}") from None
    if parts.scheme == "https":
        raise ValueError(
            f"the address of {arm!r} is https: timed requests go over plain http; measure beside the server, or name a tunnel's end"
        )
    if parts.scheme != "http" or not parts.hostname or port == 0:
        raise ValueError(f"the address of {arm!r} is no http://HOST:PORT")
    if parts.username or parts.password or parts.query or parts.fragment or parts.path not in ("", "/"):
        raise ValueError(f"the address of {arm!r} holds more than http://HOST:PORT")
    return f"http://{parts.netloc}"


class RuntimeEntry(_Owned):
    """An engine build: an executable of this host, an image by digest, or servers that stand already and are only asked.

    ``env``: what must be set in its environment (GPU selection, library paths).
    """

    engine: str = "llama-server"
    path: Path | None = Field(default=None, description="the executable; with an image, where it lies there")
    image: str = Field(default="", description="name@sha256:digest: it runs in a container")
    docker: str = Field(default="", description="address of the container engine; empty: DOCKER_HOST, else the usual socket")
    gpus: list[str] = Field(default_factory=list, description="of a container: UUIDs or numbers of the GPUs that it gets, or all")
    limits: Limits = Limits()
    servers: dict[str, str] = Field(default_factory=dict, description="name of an arm: address of the server that stands for it")
    env: dict[str, str] = Field(default_factory=dict)

    @field_validator("engine")
    @classmethod
    def _known(cls, engine: str) -> str:
        if engine not in engines.names():
            raise ValueError(f"is no known engine; known: {', '.join(engines.names())}")
        return engine

    @field_validator("gpus", mode="before")
    @classmethod
    def _numbers(cls, gpus: Any) -> Any:
        listed = [gpus] if isinstance(gpus, str | int) and not isinstance(gpus, bool) else gpus
        return [str(g) if type(g) is int else g for g in listed] if isinstance(listed, list) else listed

    @field_validator("gpus")
    @classmethod
    def _all_or_some(cls, gpus: list[str]) -> list[str]:
        if "all" in gpus and len(gpus) > 1:
            raise ValueError("names all, and some beside them: keep one of the two")
        return gpus

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str]) -> dict[str, str]:
        if bad := [name for name in env if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]:
            raise ValueError(f"{bad[0]!r} is no name of a variable")
        return env

    @field_validator("servers", mode="before")
    @classmethod
    def _words(cls, servers: Any) -> Any:
        """``off`` without quotes is no word to YAML."""
        return {yaml_word(arm): url for arm, url in servers.items()} if isinstance(servers, dict) else servers

    @field_validator("servers")
    @classmethod
    def _addresses(cls, servers: dict[str, str]) -> dict[str, str]:
        return {arm: server_address(arm, url) for arm, url in servers.items()}

    @model_validator(mode="after")
    def _one_kind(self) -> RuntimeEntry:
        if self.image and self.servers:
            raise ValueError("names an image and servers: keep one of them")
        if self.servers and self.path:
            raise ValueError("names a path and servers, which stand already: keep one of them")
        if not (self.path or self.image or self.servers):
            raise ValueError("needs a path, an image or servers")
        if not self.image and (idle := [name for name, unset in _OF_CONTAINERS.items() if getattr(self, name) != unset]):
            raise ValueError(f"has {' and '.join(idle)}, which bind a container and nothing else: name an image, or remove {idle[0]}")
        if self.servers and self.env:
            raise ValueError("has env, and servers stand already: remove env")
        return self

    @property
    def kind(self) -> Literal["process", "container", "attached"]:
        return "container" if self.image else "attached" if self.servers else "process"


class ModelEntry(_Owned):
    """A model under a name of the owner's choice: a GGUF file (of a split one the first part), or a folder with config.json and safetensors."""

    alias: str = Field(min_length=1, max_length=200)
    path: Path


class Config(_Owned):
    """Everything has a default, so that an agent runs without a file. Relative paths count from the file's folder."""

    state_dir: Path = Path()
    server: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    runtimes: list[RuntimeEntry] = Field(default_factory=list)
    models: list[ModelEntry] = Field(default_factory=list)
    model_folders: list[Path] = Field(default_factory=list)
    allowed_flags: list[str] | None = Field(
        default=None, description="flags of `extra` that this host accepts; unset: the engine's defaults"
    )
    threads: int | None = Field(default=None, ge=1, le=1024, description="CPU threads of an engine; unset: all cores but one")

    @field_validator("server")
    @classmethod
    def _http(cls, server: str) -> str:
        if server and not re.match(r"https?://[^/\s]+", server):
            raise ValueError(f"{server!r} is no http:// or https:// address")
        return server.rstrip("/")

    @field_validator("allowed_flags")
    @classmethod
    def _flags(cls, flags: list[str] | None) -> list[str] | None:
        for flag in flags or []:
            if not re.fullmatch(r"--[a-z0-9][a-z0-9-]*", flag):
                raise ValueError(f"{flag!r} is no long flag such as --override-tensor")
        return flags


def default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "specweb-agent"


def find_config() -> Path | None:
    """The file that ``SPECWEB_AGENT_CONFIG`` names, else one in the working folder, else the user's own."""
    named = os.environ.get("SPECWEB_AGENT_CONFIG")
    if named:
        return Path(named)
    user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "specweb-agent" / "config.yaml"
    return next((p for p in (Path(CONFIG_NAME), user) if p.is_file()), None)


def load_config(path: Path | None) -> Config:
    """Reads the file (None: defaults only). Raises :class:`ConfigInvalid` with every fault in words."""
    data: Any = {}
    folder = Path.cwd()
    if path is not None:
        folder = path.resolve().parent
        try:
            data = read_yaml(path.read_bytes()) or {}
        except OSError as error:
            raise ConfigInvalid(f"the configuration {path} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfigInvalid(f"the configuration {path} is no valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigInvalid(f"the configuration {path} is not a mapping of keys")
    if odd := next(_odd_texts(data), ""):
        raise ConfigInvalid(f"the configuration {path} has faults: {odd}: holds a control character, or half of a character: remove it")
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(_fault(e) for e in error.errors(include_url=False))
        raise ConfigInvalid(f"the configuration {path} has faults: {faults}") from error
    try:
        return _with_whole_paths(config, folder)
    except RuntimeError as error:
        raise ConfigInvalid(f"the configuration {path} has a path from ~ that leads nowhere: {error}") from error


def _odd_texts(data: Any, place: str = "") -> Iterator[str]:
    """Where a text stands that no path, environment or message can hold."""
    if isinstance(data, str):
        if data != whole_text(data) or not re.match(TEXT_PATTERN, data):
            yield place
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _odd_texts(key, f"a key of {place}" if place else "a key")
            yield from _odd_texts(value, f"{place}.{key}" if place else str(key))


def _with_whole_paths(config: Config, folder: Path) -> Config:
    def whole(path: Path) -> Path:
        # absolute() and not resolve(): a link to a build or a model is the owner's name for it
        return (folder / path.expanduser()).absolute()

    state_dir = whole(config.state_dir) if config.state_dir != Path() else default_state_dir()
    return config.model_copy(
        update={
            "state_dir": state_dir,
            "runtimes": [r.model_copy(update={"path": whole(r.path)}) if r.path and r.kind == "process" else r for r in config.runtimes],
            "models": [m.model_copy(update={"path": whole(m.path)}) for m in config.models],
            "model_folders": [whole(f) for f in config.model_folders],
        }
    )


def _fault(e: Any) -> str:
    where = ".".join(str(p) for p in e["loc"])
    if e["type"] == "extra_forbidden":
        key = str(e["loc"][-1])
        known = sorted({k for m in (Config, RuntimeEntry, Limits, ModelEntry) for k in m.model_fields})
        near = difflib.get_close_matches(key, known, n=1)
        return f"{where}: unknown key{f' (did you mean {near[0]!r}?)' if near else ''}"
    if e["type"] == "missing":
        return f"{where}: is required"
    return f"{where}: {e['msg'].removeprefix('Value error, ')} (given: {e['input']!r:.80})"
