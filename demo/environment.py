"""Makes .venv hold exactly the locked packages; does nothing when it already does. Standard library only.

The stamp holds what the environment depends on: the lock, the project files, the interpreter, and the path of the
clone, because the environment's scripts name it.
"""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

UV = "uv==0.13.9"
ROOT = Path(__file__).resolve().parent.parent
VENV, STAMP = ROOT / ".venv", ROOT / ".venv" / ".synced"
PYTHON = VENV / "bin" / "python"


def state() -> str:
    """Changes whenever the environment has to be made again."""
    digest = hashlib.sha256(f"{UV}\n{ROOT}\n{sys.version}\n{sys.base_prefix}\n".encode())
    for name in ("uv.lock", "pyproject.toml", "agent/pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def works(arguments: list[str]) -> bool:
    """Whether the environment's interpreter runs so; with no arguments, whether it runs at all (the one it was made from may be gone)."""
    try:
        return subprocess.run([PYTHON, *(arguments or ["-c", ""])], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(what: str, command: list[object], environment: dict[str, str]) -> None:
    began = time.monotonic()
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{what} failed with code {done.returncode}; its message stands above")
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    wanted = state()
    if STAMP.exists() and STAMP.read_text() == wanted and works([]):
        return
    STAMP.unlink(missing_ok=True)
    clean = {
        k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH")
    }
    if not works([]):
        run("virtual environment", [sys.executable, "-m", "venv", "--clear", VENV], clean)
    if not works(["-m", "pip", "--version"]):  # an environment that uv made has none
        run("pip", [PYTHON, "-m", "ensurepip"], clean)
    run("uv", [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", UV], clean)
    # The environment's own interpreter, never one that uv would fetch.
    run(
        "locked packages",
        [PYTHON, "-m", "uv", "sync", "--locked", "--quiet", "--python", PYTHON],
        {**clean, "UV_PYTHON_DOWNLOADS": "never"},
    )
    STAMP.write_text(wanted)


if __name__ == "__main__":
    main()
