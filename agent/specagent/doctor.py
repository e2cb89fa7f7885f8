"""What this machine is, what it lacks, and how to mend it, for the person who sets an agent up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from speccore.errors import ServerError
from speccore.inventory import ModelInfo

from . import fitness, processes
from .client import Client, Unreachable
from .config import Config
from .container_findings import container_engine, sockets
from .engine_findings import engine_findings
from .findings import GIB, Finding
from .inventory import Host
from .nvidia import NvidiaCard

#: A clock that is further off than this spoils moments on pages. A server tells whole seconds.
_MOST_SKEW_S = 2.0


def findings(config: Config, config_path: Path | None, host: Host, server: list[Finding]) -> list[Finding]:
    """Everything but the server, and ``server`` as it was found (see :func:`server_findings`)."""
    inventory = host.inventory
    libc = inventory.os.get("libc") or "unknown C library"
    system = f"{inventory.os['system']} {inventory.os['release']}, {inventory.os['machine']}, {libc}"
    has_nvidia = any(isinstance(card, NvidiaCard) for card in host.gpus.cards)
    threads = f"an engine gets {inventory.default_threads()} of {inventory.n_cores} cores unless the experiment says otherwise"
    boxed = [r for r in config.runtimes if r.image]
    return [
        Finding("ok", "machine", f"{inventory.hostname}, {system}"),
        Finding("ok", "hardware", f"{inventory.hardware_name()}, {inventory.memory_bytes / GIB:.1f} GiB of memory"),
        Finding("ok", "configuration", str(config_path) if config_path else "none, defaults are used (see config.example.yaml)"),
        Finding("ok", "threads", threads),
        *fitness.gpu_findings(host.gpus),
        *fitness.machine_findings(inventory, config.state_dir),
        *engine_findings([r.info for r in host.runtimes], inventory.broken_runtimes, has_gpu=bool(host.gpus.cards)),
        *_models(inventory.models),
        *(Finding("warn", "problem", p, "Mend it, or take the entry out of the configuration.") for p in inventory.problems),
        *_sensors(inventory.sensors),
        _containment(processes.cgroup_parent()),
        *(f for socket in sockets([r.docker for r in boxed]) for f in container_engine(socket, wanted=bool(boxed), has_nvidia=has_nvidia)),
        *server,
    ]


def _models(models: Iterable[ModelInfo]) -> list[Finding]:
    found = [
        Finding(
            "ok",
            "model",
            f"{m.alias}: {m.architecture} {m.quantization}, {m.size_bytes / 1e6:.1f} MB, {m.manifest_hash[:12]}, "
            f"tokenizer {m.tokenizer_hash[:8] or 'none'}, chat template {m.chat_template_hash[:8] or 'none'}, "
            f"{'with' if m.has_mtp else 'no'} MTP layers",
            details=m.model_dump(),
        )
        for m in models
    ]
    remedy = "Name GGUF files in the configuration under models, or their folder under model_folders."
    return found or [Finding("fail", "model", "no model", remedy)]


def _sensors(sensors: dict[str, str]) -> list[Finding]:
    """A machine that has no NVIDIA card lacks nothing by not seeing one; see fitness.gpu_findings for one that has."""
    there = [name for name, status in sensors.items() if status == "ok"]
    remedy = "What rests on it is shown as not checked, or withheld; nothing else needs it."
    lacking = [(name, status.removeprefix("missing: ")) for name, status in sensors.items() if status != "ok"]
    return [
        Finding("ok", "sensors", ", ".join(there) or "none"),
        *(Finding("ok" if name == "nvml" else "warn", f"sensor {name}", why, "" if name == "nvml" else remedy) for name, why in lacking),
    ]


def _containment(cgroup: str) -> Finding:
    if cgroup:
        return Finding("ok", "containment", f"each engine gets a control group of its own, below {cgroup}")
    return Finding("ok", "containment", "no control group may be made: engines are found by process group and by their environment")


def server_findings(client: Client | None, address: str) -> list[Finding]:
    """``client`` with this host's token; None if it is enrolled nowhere."""
    if client is None:
        remedy = "specweb-agent enrol --server URL --code CODE"
        return [Finding("ok", "server", f"not enrolled: experiments run here by hand, with no server. To enrol: {remedy}")]
    before = datetime.now(UTC)
    try:
        greeting = client.greet()
    except Unreachable as error:
        return [Finding("warn", "server", error.message, f"Look at the network and at the address {address}.")]
    except ServerError as error:
        remedy = f"Look at what answers at {address}: an address without a path, such as https://specweb.example.org, is wanted."
        return [Finding("fail", "server", error.message, remedy)]
    if not greeting.accepted:
        return [Finding("fail", "server", f"{address} refuses this host: {greeting.error.message}", greeting.error.remedy or _ENROL_AGAIN)]
    found = [Finding("ok", "server", f"{address} speaks protocol {greeting.protocol} and takes this host's token")]
    if greeting.date is None:
        return found
    middle = before + (datetime.now(UTC) - before) / 2
    # a server's date is cut to whole seconds
    skew = (middle - greeting.date).total_seconds() - 0.5
    if abs(skew) > _MOST_SKEW_S:
        text = f"this machine is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the server"
        return [*found, Finding("warn", "clock skew", text, "Set the clock that is wrong; a time service does it for good.")]
    return [*found, Finding("ok", "clock skew", f"{abs(skew):.1f} s, told to the second")]


_ENROL_AGAIN = "Enrol again with a code from the server's Hosts page."
