"""An image that holds the wheel's llama-server, made of files of this machine: no registry is asked, nothing is downloaded."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

#: Beside the engine: what the tests look around with from inside.
PROGRAMS = ("bash", "cat", "id", "sleep", "timeout", "touch")
VLLM_HELP = Path(__file__).resolve().parents[1] / "logs" / "vllm" / "v0.32.0.help-all.txt"
ENGINE = "/engine/bin/llama-server"
DEAF, CHATTY, FORKING = "/engine/bin/deaf", "/engine/bin/chatty", "/engine/bin/forking"

#: Scripts in the engine's place that hand its questions on, so that they are taken for it, and misbehave as a server.
_SCRIPTS = {
    DEAF: "trap '' TERM\n{engine} \"$@\" &\nwhile :; do wait; sleep 1; done\n",
    CHATTY: '{engine} "$@" &\nline=$(printf \'x%.0s\' {{1..1000}})\nfor ((i = 0; i < 90000; i++)); do echo "$line"; done\n: > /tmp/logged\nwait\n',
    FORKING: "(trap '' TERM; while :; do sleep 1; done) &\nexec {engine} \"$@\"\n",
}
#: Says what a recorded vLLM says of itself, and is none.
FAKE_VLLM, _HELP = "/engine/bin/fake-vllm", "/engine/vllm-help.txt"
_SAYS = f'case "$*" in *--help*) exec cat {_HELP};; --version) echo 0.32.0+cpu;; *) exit 3;; esac'


def write_tar(out: IO[bytes], llama_server: Path) -> None:
    """As `docker import` takes it."""
    programs = [Path(subprocess.run(["which", p], capture_output=True, text=True, check=True).stdout.strip()) for p in PROGRAMS]
    own = sorted(llama_server.parent.glob("*.so*"))
    files = {f"/engine/bin/{p.name}": p for p in (llama_server, *own)} | {f"/bin/{p.name}": p for p in programs}
    files |= {str(p): p for p in _libraries([llama_server, *own, *programs], llama_server.parent)}
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("tmp", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, path in sorted(files.items()):
            _add(tar, name, path.resolve().read_bytes())
        _add(tar, _HELP, VLLM_HELP.read_bytes())
        _add(tar, FAKE_VLLM, f"#!/bin/bash\n{_SAYS}\n".encode())
        for name, script in _SCRIPTS.items():
            asked = f'for w in "$@"; do case $w in --version|--help|--list-devices) exec {ENGINE} "$@";; esac; done\n'
            _add(tar, name, f"#!/bin/bash\n{asked}{script.format(engine=ENGINE)}".encode())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(data), 0o755
    tar.addfile(entry, io.BytesIO(data))


def _libraries(files: Iterable[Path], folder: Path) -> set[Path]:
    """The machine's own libraries that these files load, with the loader itself."""
    found = set()
    for file in files:
        told = subprocess.run(
            ["ldd", str(file)], capture_output=True, text=True, env={"LD_LIBRARY_PATH": str(folder), "PATH": "/usr/bin:/bin"}
        )
        for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told.stdout, re.MULTILINE):
            if not Path(path).is_relative_to(folder):
                found.add(Path(path))
    return found
