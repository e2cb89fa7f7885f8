"""What this machine is and offers, as it is advertised to the server and used to run jobs."""

from __future__ import annotations

import difflib
import math
import os
import platform
import re
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from speccore import engines
from speccore.attached import SERVED
from speccore.errors import BuildChanged, HostError, ModelFileMissing, NoHostCanRun
from speccore.inventory import BrokenRuntime, Device, HostInventory, ModelInfo, RuntimeInfo
from speccore.plain import one_line, whole_text
from speccore.spec import ExperimentSpec
from speccore.spec_words import PLAIN_PATTERN

from . import __version__, cpus, model_places
from .config import Config, RuntimeEntry
from .filecache import FileCache
from .gpus import Gpus
from .models import configured_models, model_files, model_info
from .probing import cpu_flags
from .runtimes import Runtime, RuntimeBroken, configured_runtimes, read_runtime

_MACHINE_ID = Path("/etc/machine-id")
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
MAX_ALIAS = 200


class NoEngine(HostError):
    code = "no_engine"
    retry = False
    remedy = "Name llama-server or vLLM in the configuration under runtimes; llama-server is also found by LLAMA_SERVER and on the PATH."


@dataclass
class Host:
    """This machine: the inventory that is advertised, with what stays here (environments, sensors, hashes)."""

    inventory: HostInventory
    runtimes: list[Runtime]
    gpus: Gpus
    cache: FileCache
    engine_records: Path | None = None  # folder in which running engines are on record

    def runtime(self, manifest_hash: str) -> Runtime:
        """Raises :class:`NoHostCanRun`."""
        for runtime in self.runtimes:
            if runtime.info.manifest_hash == manifest_hash:
                return runtime
        raise NoHostCanRun(
            f"the engine build {manifest_hash[:12]} is not on this host (any more)",
            remedy="Put the build back, or submit again so that the job takes a build that is there.",
            runtime_hash=manifest_hash,
        )

    def container_engines(self) -> list[str]:
        """Addresses of the container engines that builds of this host run on."""
        return sorted({r.container.docker for r in self.runtimes if r.container})

    def check_build(self, runtime: Runtime) -> None:
        """Raises :class:`BuildChanged` if a file of the build is gone or another one since the inventory: two builds in one
        job are no comparison. Files that did not change are not read again."""
        if runtime.manifest_now:
            self._check_manifest(runtime.info, runtime.manifest_now)
        for name, path in runtime.files.items():
            try:
                digest = self.cache.sha256(path)
            except OSError as error:
                raise BuildChanged(f"{path} of the engine build can't be read: {error.strerror}", path=str(path)) from error
            if digest != runtime.info.manifest.get(name):
                raise BuildChanged(f"{path} of the engine build is another one than was advertised", path=str(path))

    def _check_manifest(self, info: RuntimeInfo, manifest_now: Callable[[FileCache], Mapping[str, str]]) -> None:
        try:
            now = manifest_now(self.cache)
        except OSError as error:
            raise BuildChanged(f"{error.filename} of the engine build can't be read: {error.strerror}") from error
        if other := sorted(name for name in {*now, *info.manifest} if now.get(name) != info.manifest.get(name)):
            raise BuildChanged(f"{', '.join(other)} of the engine build is another one than was advertised", path=info.executable)

    def model(self, manifest_hash: str) -> ModelInfo:
        """The model as it is on disk now. Raises :class:`ModelFileMissing` if it is gone or another one by now."""
        for model in self.inventory.models:
            if model.manifest_hash == manifest_hash:
                self._check_files(model)
                return model
        raise ModelFileMissing(f"no model {manifest_hash[:12]} is on this host (any more)", model_hash=manifest_hash)

    def _check_files(self, model: ModelInfo) -> None:
        if model.format == SERVED:  # known by a server's word only
            return
        paths = model_files(Path(model.path))
        if gone := sorted(set(model.manifest) - {path.name for path in paths}):
            raise ModelFileMissing(f"{gone[0]} of the model {model.path} is gone", path=str(Path(model.path) / gone[0]))
        for path in paths:
            try:
                digest = self.cache.sha256(path)
            except OSError as error:
                raise ModelFileMissing(f"the model file {path} can't be read: {error.strerror}", path=str(path)) from error
            if digest != model.manifest.get(path.name):
                raise ModelFileMissing(f"the model file {path} is another one than was advertised", path=str(path))


def take_inventory(config: Config, cache: FileCache) -> Host:
    """Looks at the whole machine; what can't be used is named in ``broken_runtimes`` and ``problems``, and left out."""
    problems: list[str] = []
    runtimes, broken = _runtimes(config, cache)
    models = _with_served(_models(config, cache, problems), runtimes)
    gpus = Gpus()
    cache.save()
    problems = [one_line(problem) for problem in problems]  # a file's maker decides what its name and headers hold
    allowed = config.allowed_flags
    inventory = HostInventory(
        agent_version=__version__,
        hostname=socket.gethostname(),
        os={
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()),
        },
        boot_id=_boot_id(),
        cpu_model=_cpu_model(),
        n_cores=n_usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        engine_threads=config.threads,
        devices=gpus.devices() or [_cpu_device(config.state_dir)],
        runtimes=[r.info for r in runtimes],
        models=models,
        allowed_flags=list(engines.default_allowed_flags() if allowed is None else allowed),
        labels=config.labels,
        sensors={
            **gpus.sensors(),
            **cpus.sensors(),
            "pss": "ok" if Path("/proc/self/smaps_rollup").exists() else "missing: no smaps_rollup on this platform",
        },
        broken_runtimes=broken,
        cpu_flags=cpu_flags(),
        problems=problems,
    )
    return Host(inventory, runtimes, gpus, cache, config.state_dir / "engines")


def _runtimes(config: Config, cache: FileCache) -> tuple[list[Runtime], list[BrokenRuntime]]:
    found, broken = [], []
    for entry in configured_runtimes(config):
        try:
            found.append(read_runtime(entry, cache))
        except OSError as error:
            broken.append(_broken(entry, RuntimeBroken(f"{error.filename or _named(entry)} can't be read: {error.strerror or error}")))
        except RuntimeBroken as error:
            broken.append(_broken(entry, error))
    return found, broken


def _broken(entry: RuntimeEntry, error: RuntimeBroken) -> BrokenRuntime:
    return BrokenRuntime(engine=entry.engine, kind=entry.kind, path=_named(entry), why=str(error), remedy=error.remedy)


def _named(entry: RuntimeEntry) -> str:
    """What the owner's configuration calls it."""
    return entry.image or ", ".join(entry.servers.values()) or str(entry.path)


def _models(config: Config, cache: FileCache, problems: list[str]) -> list[ModelInfo]:
    found: list[ModelInfo] = []
    for folder in config.model_folders:
        if not folder.is_dir():
            problems.append(f"model folder: {folder} is not there")
    named = {entry.path for entry in config.models}
    for alias, path in configured_models(config):
        if any(m.alias == alias for m in found):
            problems.append(f"model {alias!r}: the name is there twice, {path} is left out")
            continue
        if fault := _name_fault(alias, path):
            problems.append(f"model {alias[:80]!r}: {path} is left out: {fault}")
            continue
        try:
            if path not in named and (out := model_places.leads_to(model_files(path), config)):
                problems.append(
                    f"model {alias!r}: {path} leads to {out}, outside of model_folders, and is left out: "
                    "name it under models, or add the folder that it lies in to model_folders"
                )
                continue
            found.append(model_info(alias, path, cache))
        except OSError as error:
            problems.append(f"model {alias!r}: {error.filename or path} can't be read: {error.strerror}")
        except ValueError as error:
            problems.append(f"model {alias!r}: {error}")
    return found


def _name_fault(alias: str, path: Path) -> str:
    """Why a name can't be sent to a server or asked for by a person; empty if it can."""
    if str(path) != whole_text(str(path)):
        return "its name is no UTF-8"
    if len(alias) > MAX_ALIAS:
        return f"its name has {len(alias)} characters, more than {MAX_ALIAS}; give it another one under models"
    return "" if re.match(PLAIN_PATTERN, alias) else "its name holds a control character; give it another one under models"


def _with_served(models: list[ModelInfo], runtimes: Sequence[Runtime]) -> list[ModelInfo]:
    """With those that attached servers tell of, unless a file of the owner's goes by that name or lies at that path."""
    taken = {name for m in models for name in (m.alias, m.path)}
    served = {m.alias: m for r in runtimes for m in r.models if m.alias not in taken and m.path not in taken}
    return [*models, *served.values()]


def chosen_runtime(spec: ExperimentSpec, runtimes: Sequence[RuntimeInfo]) -> RuntimeInfo:
    """The first build that the spec's selector allows. Raises :class:`NoHostCanRun` naming what is there, or :class:`NoEngine`."""
    want = spec.runtime
    for runtime in runtimes:
        commit_fits = not want.source_commit or (
            runtime.source_commit != ""
            and (runtime.source_commit.startswith(want.source_commit) or want.source_commit.startswith(runtime.source_commit))
        )
        if (
            runtime.engine == want.engine
            and (runtime.kind == "attached") == want.attached
            and (not want.version or want.version in runtime.version)
            and commit_fits
            and (not want.backend or want.backend == runtime.backend)
            and (not want.manifest_hash or runtime.manifest_hash == want.manifest_hash)
        ):
            return runtime
    if not runtimes:
        raise NoEngine("this host has no usable engine build")
    asked = {k: v for k, v in want.model_dump().items() if v}
    there = "; ".join(f"{r.engine} {r.version} ({r.backend}, {r.manifest_hash[:12]})" for r in runtimes) or "none"
    raise NoHostCanRun(
        f"runtime: no engine build on this host fits {asked}; builds here: {there}",
        remedy="Name a build that is here, or add it to the agent's configuration under runtimes.",
    )


def n_usable_cores() -> int:
    """Cores that this process may use: by affinity, and by the cgroup's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota = _cgroup_quota()
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def _cgroup_quota() -> float | None:
    try:
        limit, period = _CPU_MAX.read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"booted-{int(psutil.boot_time())}"


def _cpu_model() -> str:
    try:
        m = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        m = None
    return m[1].strip() if m else (platform.processor() or platform.machine())


def _cpu_device(state_dir: Path) -> Device:
    return Device(
        uuid=f"CPU-{_machine_uuid(state_dir)}", kind="cpu", name=_cpu_model(), memory_bytes=psutil.virtual_memory().total, driver=""
    )


def _machine_uuid(state_dir: Path) -> str:
    """Stable for this machine: from its machine-id (hashed, since the id itself is private), else drawn once and kept."""
    try:
        machine_id = _MACHINE_ID.read_text().strip()
    except OSError:
        machine_id = ""
    if machine_id:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"specweb-agent:{machine_id}"))
    kept = state_dir / "machine-uuid"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{uuid.uuid4()}\n")
    return kept.read_text().strip()


def nearest(word: str, known: Sequence[str]) -> str:
    match = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""
