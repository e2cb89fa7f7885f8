"""The doctor about engine builds: what each can, what is odd about it, and which can't be used."""

from __future__ import annotations

from specagent import doctor
from specagent.config import Config
from specagent.findings import Finding, is_fit
from specagent.inventory import Host
from specagent.runtimes import Runtime
from speccore.inventory import BrokenRuntime


def level(findings: list[Finding], subject: str) -> list[str]:
    return [f.level for f in findings if f.subject == subject]


def test_each_build_with_its_modes_what_is_odd_and_what_can_t_be_used(config: Config, host: Host) -> None:
    real = host.runtimes[0].info
    can = real.capabilities
    odd = real.model_copy(update={"oddities": ["crashes (SIGSEGV) at --version"], "version": "", "manifest_hash": "f" * 64})
    older = can.model_copy(update={"dialect": "draft-flag", "spec_types": [], "flags": {**can.flags, "-md": "--model-draft"}})
    image = f"engine@sha256:{'b' * 64}"
    boxed = real.model_copy(update={"kind": "container", "image": image, "capabilities": older, "oddities": []})
    broken = BrokenRuntime(engine="llama-server", path="/opt/x", why="/opt/x crashes (SIGILL) at --help", remedy="Take another.")
    told = host.inventory.model_copy(update={"runtimes": [odd, boxed], "broken_runtimes": [broken]})
    found = doctor.findings(config, None, Host(told, [Runtime(odd), Runtime(boxed)], host.gpus, host.cache), [])
    assert is_fit(found)
    first, second, unusable = (f for f in found if f.subject == "engine")
    assert "(says no version)" in first.text
    assert first.details["modes"][:2] == ["draft", "mtp"]
    assert first.details["oddities"] == odd.oddities
    assert f"in a container of {image}" in second.text
    assert (second.details["kind"], second.details["modes"]) == ("container", ["draft"])
    modes = [f.text for f in found if f.subject == "its modes"]
    assert modes[0].startswith("off, draft, mtp, eagle3")
    assert modes[1].startswith("off, draft. Lacking: mtp needs --spec-type draft-mtp; ")
    (oddity,) = (f for f in found if f.subject == "oddity")
    assert (oddity.level, oddity.text) == ("warn", "crashes (SIGSEGV) at --version")
    assert oddity.remedy
    assert (unusable.level, unusable.text, unusable.remedy) == ("warn", f"can't be used: {broken.why}", "Take another.")
    only_broken = Host(told.model_copy(update={"runtimes": []}), [], host.gpus, host.cache)
    assert level(doctor.findings(config, None, only_broken, []), "engine") == ["warn", "fail"]


def test_an_attached_build_says_what_nobody_can_check(config: Config, host: Host) -> None:
    servers = {"off": "http://127.0.0.1:8080"}
    seen = host.runtimes[0].info.model_copy(update={"kind": "attached", "servers": servers, "executable": "", "oddities": []})
    found = doctor.findings(config, None, Host(host.inventory, [Runtime(seen)], host.gpus, host.cache), [])
    engine = next(f.text for f in found if f.subject == "engine")
    assert engine.endswith(f"no file {seen.manifest_hash[:12]}, attached: http://127.0.0.1:8080")
    assert "not checked: the hashes of its program and model files" in next(f.text for f in found if f.subject == "its modes")
