"""Who may import whom, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"speccore", "specagent", "specclient", "specweb", "workers", "demo", "bench", "tests"}

BELOW_THE_VIEWS = {f"specweb.{name}" for name in ("accounts", "experiments", "results", "reported", "watching", "exports", "queue")}
#: Package: what of ours it may import beside itself. The longest name that fits a module counts.
MAY: dict[str, set[str]] = {
    "speccore": set(),
    "specagent": {"speccore"},
    "specclient": {"speccore"},
    "specweb": {"speccore", "specweb"},  # settings, urls, wsgi: they bind the parts together
    "specweb.queue": set(),
    "specweb.accounts": set(),
    "specweb.experiments": {"speccore", "specweb.accounts", "specweb.queue"},
    "specweb.results": {"speccore", "specweb.accounts", "specweb.experiments", "specweb.queue"},
    "specweb.reported": {"speccore", "specweb.accounts", "specweb.experiments", "specweb.results"},
    "specweb.watching": {"speccore", "specweb.accounts", "specweb.experiments", "specweb.results", "specweb.queue"},
    "specweb.exports": {"speccore", "specweb.accounts", "specweb.experiments", "specweb.results", "specweb.reported"},
    "specweb.api": {"speccore", *BELOW_THE_VIEWS},
    "specweb.dashboard": {"speccore", *BELOW_THE_VIEWS},
    "workers": {"speccore", "specweb"},
    "demo": OURS - {"tests", "bench"},
}
#: What the contract never touches: files, sockets, processes, clocks, environment, frameworks.
NO_IO = {"os", "io", "pathlib", "socket", "subprocess", "threading", "multiprocessing", "asyncio", "time", "shutil", "tempfile", "sys"}
FRAMEWORKS = {"django", "rest_framework", "celery", "httpx", "requests", "psutil", "redis", "psycopg"}


def sources() -> dict[str, Path]:
    """Dotted module name: file."""
    found = {}
    for base in (ROOT / "agent", ROOT):
        for package in sorted(OURS - {"tests"}):
            for path in sorted((base / package).rglob("*.py")):
                found[".".join(path.relative_to(base).with_suffix("").parts)] = path
    return found


SOURCES = sources()


def imports(module: str, path: Path) -> Iterator[tuple[str, int]]:
    """Every imported module by its full name, those inside functions too. ``from a import b`` names a.b where that is a module."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    package = package[:-1] if package and package[-1] == "__init__" else package
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{name}.{alias.name}"
                yield (full if _is_module(full) else name), node.lineno


def _is_module(name: str) -> bool:
    return name in SOURCES or f"{name}.__init__" in SOURCES


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def rule_of(module: str) -> tuple[str, set[str]]:
    package = max((p for p in MAY if _inside(module, p)), key=len)
    return package, MAY[package]


def forbidden(module: str, path: Path) -> list[str]:
    package, allowed = rule_of(module)
    return [
        f"{module}:{line} imports {name}"
        for name, line in imports(module, path)
        if name.split(".")[0] in OURS and not _inside(name, package) and not any(_inside(name, a) for a in allowed)
    ]


def test_every_part_is_looked_at() -> None:
    for part in ("speccore.plan", "specagent.cli", "specweb.settings", "specweb.accounts.models", "workers.tasks", "demo.stack"):
        assert part in SOURCES


def test_imports_of_ours() -> None:
    assert [f for module, path in SOURCES.items() if not module.startswith("bench") for f in forbidden(module, path)] == []


def test_the_rule_finds_what_it_forbids(tmp_path: Path) -> None:
    source = "def late():\n    from specweb.results import models\nimport specweb.accounts.models\nfrom ..results.models import Trial\n"
    bad = tmp_path / "x.py"
    bad.write_text(source)
    found = forbidden("specweb.experiments.x", bad)
    assert sorted(f.split(" imports ")[1] for f in found) == ["specweb.results.models", "specweb.results.models"]
    assert len(forbidden("speccore.x", bad)) == 2
    assert len(forbidden("specweb.accounts.x", bad)) == 2


def tops(module: str) -> set[str]:
    return {name.split(".")[0] for name, _ in imports(module, SOURCES[module])}


def modules_of(package: str) -> list[str]:
    return [m for m in SOURCES if _inside(m, package)]


def test_the_contract_has_no_io_and_no_framework() -> None:
    found = {m: tops(m) & (NO_IO | FRAMEWORKS) for m in modules_of("speccore")}
    assert {m: names for m, names in found.items() if names} == {}
    statistics = {"changes", "extending", "noise_floor", "sample_size", "sampling_rule", "sequential", "stats", "tails"}
    assert {m for m in modules_of("speccore") if tops(m) & {"numpy", "scipy"}} == {f"speccore.{m}" for m in statistics}


def test_the_contract_calls_no_clock_and_opens_nothing() -> None:
    found = []
    for module in modules_of("speccore"):
        for node in ast.walk(ast.parse(SOURCES[module].read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                if name in {"now", "utcnow", "today", "open", "print", "input", "exec", "eval"}:
                    found.append(f"{module}:{node.lineno} calls {name}")
    assert found == []


def test_the_agent_knows_no_server_framework() -> None:
    found = {m: tops(m) & {"django", "rest_framework", "celery", "psycopg", "redis"} for m in modules_of("specagent")}
    assert {m: names for m, names in found.items() if names} == {}
