"""A vLLM installation on this machine: the environment behind its script, what it can do, and which backend it was built for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from speccore.canonical import manifest_hash
from speccore.engines import vllm
from speccore.inventory import RuntimeInfo

from .distributions import Contents, Environment, NoEnvironment, contents, environment_of
from .filecache import FileCache

#: The help imports the whole engine: seconds on an idle machine, a minute on a busy one.
_HELP_TIMEOUT_S = 300.0
_HELP = "vllm-help"
_PACKAGE = "vllm/__init__.py"
#: While it is asked for its help it neither reports nor downloads.
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "COLUMNS": "80"}
_REGISTERED = re.compile(r'^\s+"(\w+)":', re.MULTILINE)


class NotUsable(ValueError):
    """It can't be used; the message says why."""


@dataclass(frozen=True)
class Installation:
    """A vLLM that can be used: what is told of it, and the environment that it was read from."""

    info: RuntimeInfo
    environment: Environment
    architectures: frozenset[str]  # of models that it has code of its own for; empty: that can't be told

    def manifest_now(self, cache: FileCache) -> dict[str, str]:
        """As the environment is now. Raises OSError."""
        return contents(self.environment, cache).manifest


def look(script: Path, env: Mapping[str, str], cache: FileCache) -> Installation:
    """``env``: the whole environment in which it runs. Raises :class:`NotUsable`.

    Nothing of it is run but its ``serve --help=all``, and that once for each state of its files.
    """
    try:
        environment = environment_of(script, env)
        found = contents(environment, cache)
    except NoEnvironment as error:
        raise NotUsable(str(error)) from error
    except OSError as error:
        raise NotUsable(f"{error.filename or script} can't be read: {error.strerror}") from error
    code = _where(environment)
    version, provider = _version(found, code)
    identity = manifest_hash(found.manifest)
    capabilities = vllm.capabilities(_help(script, env, identity, cache))
    if lacking := [flag for flag in ("--max-model-len", "--port") if flag not in capabilities.flags]:
        raise NotUsable(f"{script} is no vllm: its serve --help=all lists no {' and no '.join(lacking)}")
    info = RuntimeInfo(
        engine="vllm",
        version=version,
        source_commit=_commit(code),
        backend=_backend(version, code),
        manifest_hash=identity,
        manifest=found.manifest,
        executable=str(script),
        capabilities=capabilities,
        oddities=[*_oddities(found, provider)],
    )
    return Installation(info, environment, _architectures(code))


def _where(environment: Environment) -> Path:
    """The folder that holds the package. Raises :class:`NotUsable`."""
    for folder in environment.folders:
        if (folder / _PACKAGE).is_file():
            return folder
    raise NotUsable(f"{environment.interpreter} has no package vllm of its own (a checkout that is only linked has no identity)")


def _version(found: Contents, code: Path) -> tuple[str, str]:
    """Its version, and the distribution that holds the code where that is another than ``vllm``."""
    named = next((n.partition(" ")[2] for n in found.manifest if n.startswith("vllm ")), "")
    provider = next((n for n in found.manifest if n.startswith("vllm-") and _holds(code, n)), "")
    version = named or provider.partition(" ")[2]
    if not version:
        raise NotUsable(f"{code} has vllm as plain files, of no distribution: it has no version and no identity")
    return version, provider


def _holds(code: Path, distribution: str) -> bool:
    name, _, version = distribution.partition(" ")
    record = code / f"{name.replace('-', '_')}-{version}.dist-info" / "RECORD"
    try:
        return f"\n{_PACKAGE}," in f"\n{record.read_text(encoding='utf-8')}"
    except OSError:
        return False


def _commit(code: Path) -> str:
    try:
        said = re.search(
            r"^__commit_id__ = commit_id = ['\"]g?([0-9a-f]{7,40})['\"]", (code / "vllm/_version.py").read_text(), re.MULTILINE
        )
    except OSError:
        return ""
    return said[1] if said else ""


def _backend(version: str, code: Path) -> str:
    """By the version's own ending, as vLLM chooses too; else by what its PyTorch was built for."""
    if local := re.search(r"\+(?:.*\.)?(cpu|rocm|xpu|tpu)", version):
        return local[1]
    try:
        torch = (code / "torch/version.py").read_text()
    except OSError:
        return "cpu"
    built = re.findall(r"^(cuda|hip|xpu)\b[^=]*= *['\"]", torch, re.MULTILINE)
    return {"hip": "rocm"}.get(built[0], built[0]) if built else "cpu"


def _architectures(code: Path) -> frozenset[str]:
    try:
        return frozenset(_REGISTERED.findall((code / "vllm/model_executor/models/registry.py").read_text(encoding="utf-8")))
    except OSError:
        return frozenset()


def _oddities(found: Contents, provider: str) -> list[str]:
    said = []
    if provider and any(n.startswith("vllm ") for n in found.manifest):
        said.append(f"the distribution vllm holds its name only, the code is that of {provider}")
    for name, files in found.changed.items():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        said.append(f"{name} is not as it was installed: {files[0]}{more}")
    linked = [name for name in found.loose if name.startswith("__editable__") or name == "easy-install.pth"]
    if linked:
        said.append(f"it takes code from elsewhere, which its identity doesn't cover ({linked[0]})")
    return said


def _help(script: Path, env: Mapping[str, str], identity: str, cache: FileCache) -> str:
    known = cache.get(script, _HELP)
    if isinstance(known, dict) and known.get("identity") == identity:
        return str(known["text"])
    command = [str(script), "serve", "--help=all"]
    try:
        answer = subprocess.run(
            command, env={**env, **_QUIET}, capture_output=True, text=True, errors="replace", timeout=_HELP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotUsable(f"{' '.join(command)} failed: {error}") from error
    if answer.returncode != 0:
        raise NotUsable(f"{' '.join(command)} ended with {answer.returncode}: {_why(answer.stderr or answer.stdout)}")
    cache.put(script, _HELP, {"identity": identity, "text": answer.stdout})
    return answer.stdout


def _why(text: str) -> str:
    """The last line, with what is known to mend it."""
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing printed")
    if "torchvision" in text or "torchaudio" in text or "torchcodec" in text:
        return f"{last} (a build for the CPU: uninstall torchvision, torchaudio and torchcodec, which come for CUDA)"
    return last
