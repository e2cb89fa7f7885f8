"""The host owner's own configuration: what this machine offers and what it allows, read from one YAML file."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from speccore.errors import HostError
from speccore.yamltext import read_yaml

CONFIG_NAME = "specweb-agent.yaml"


class ConfigInvalid(HostError):
    code = "config_invalid"
    retry = False
    remedy = "Correct the agent's configuration file; agent/config.example.yaml shows every key."


class _Owned(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RuntimeEntry(_Owned):
    """An engine build: its executable, and what must be set in its environment (GPU selection, library paths)."""

    engine: Literal["llama-server"] = "llama-server"
    path: Path
    env: dict[str, str] = Field(default_factory=dict)


class ModelEntry(_Owned):
    """A model file under a name of the owner's choice; for a split model, its first part."""

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
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(_fault(e) for e in error.errors(include_url=False))
        raise ConfigInvalid(f"the configuration {path} has faults: {faults}") from error
    return _with_whole_paths(config, folder)


def _with_whole_paths(config: Config, folder: Path) -> Config:
    def whole(path: Path) -> Path:
        # absolute() and not resolve(): a link to a build or a model is the owner's name for it
        return (folder / path.expanduser()).absolute()

    state_dir = whole(config.state_dir) if config.state_dir != Path() else default_state_dir()
    return config.model_copy(
        update={
            "state_dir": state_dir,
            "runtimes": [r.model_copy(update={"path": whole(r.path)}) for r in config.runtimes],
            "models": [m.model_copy(update={"path": whole(m.path)}) for m in config.models],
            "model_folders": [whole(f) for f in config.model_folders],
        }
    )


def _fault(e: Any) -> str:
    where = ".".join(str(p) for p in e["loc"])
    if e["type"] == "extra_forbidden":
        key = str(e["loc"][-1])
        known = sorted({k for m in (Config, RuntimeEntry, ModelEntry) for k in m.model_fields})
        near = difflib.get_close_matches(key, known, n=1)
        return f"{where}: unknown key{f' (did you mean {near[0]!r}?)' if near else ''}"
    if e["type"] == "missing":
        return f"{where}: is required"
    return f"{where}: {e['msg'].removeprefix('Value error, ')} (given: {e['input']!r:.80})"
