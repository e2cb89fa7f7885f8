"""What the doctor says of each engine build: what it is, which modes it offers, what is odd about it, and which can't be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccore import attached, engines, oddities
from speccore.errors import SpecError
from speccore.inventory import BrokenRuntime, RuntimeInfo
from speccore.offered import Offered, offered

from .findings import Finding
from .inventory import NoEngine


def engine_findings(runtimes: Sequence[RuntimeInfo], broken: Sequence[BrokenRuntime], *, has_gpu: bool) -> list[Finding]:
    """What doctor says of the builds: those that can be used first, then the broken ones, then what all of them lack."""
    found = [finding for r in runtimes for finding in _of_build(r)]
    found += [Finding("warn", "engine", f"can't be used: {b.why}", b.remedy, b.model_dump()) for b in broken]
    if not runtimes:
        return [*found, Finding("fail", "engine", "no usable engine build", NoEngine.remedy)]
    if has_gpu and all(r.backend == "cpu" for r in runtimes):
        remedy = "Install a build with CUDA, HIP or Vulkan; specweb-agent asks it with --list-devices."
        found.append(Finding("warn", "engine", "no build finds the GPU: all would run on the processor", remedy))
    return found


def _of_build(r: RuntimeInfo) -> list[Finding]:
    able, can = r.capabilities, offered(r)
    speculation = sorted({f for f in able.flags.values() if _is_speculation(r.engine, f)})
    flags = sorted(set(able.flags.values()))
    details: dict[str, Any] = {
        "kind": r.kind,
        "executable": r.executable,
        "image": r.image,
        "servers": r.servers,
        "version": r.version,
        "manifest_hash": r.manifest_hash,
        "dialect": able.dialect,
        "modes": can.modes,
        "lacking": can.lacking,
        "oddities": r.oddities,
        "speculation_types": able.spec_types,
        "flags": flags,
        "removed_flags": able.removed_flags,
    }
    where = {"process": "", "container": f", in a container of {r.image}", "attached": f", attached: {', '.join(r.servers.values())}"}
    known_by = "no file" if r.kind == "attached" else f"{len(r.manifest)} files"
    drafts = "" if r.kind == "attached" else f", speculation: {', '.join(able.spec_types) or able.dialect}"
    text = (
        f"{r.engine} {r.version or '(says no version)'}, {r.backend or 'backend not told'}, {known_by} {r.manifest_hash[:12]}"
        f"{where[r.kind]}{drafts}"
    )
    found = [Finding("ok", "engine", text, details=details)]
    if r.kind == "attached":
        found.append(
            Finding("ok", "its modes", f"those of its servers ({', '.join(r.servers)}); not checked: {', '.join(attached.UNCHECKED)}")
        )
    else:
        found.append(_modes(can))
        found.append(Finding("ok", "its speculation", f"{len(speculation)} of {len(flags)} flags: {' '.join(speculation) or 'none'}"))
    return found + [Finding("warn", "oddity", odd, oddities.remedy(odd)) for odd in r.oddities]


def _modes(can: Offered) -> Finding:
    if can.baseline:
        return Finding("warn", "its modes", f"nothing runs on it: {can.baseline}", "Take a build that has what is lacking.")
    lacking = "; ".join(f"{mode} {need}" for mode, need in can.lacking.items())
    return Finding("ok", "its modes", f"off, {', '.join(can.modes)}".rstrip(", ") + (f". Lacking: {lacking}" if lacking else ""))


def _is_speculation(engine: str, flag: str) -> bool:
    try:
        return bool(engines.engine(engine).is_speculation(flag))
    except SpecError:
        return False
