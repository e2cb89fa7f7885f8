"""`make test-vllm`: makes vLLM's environment and the models, then runs experiments on the real engine, on the processor.

It needs Linux on x86-64, Python 3.11, 8 GB of disk and about 20 minutes on two cores; what is made stays for the next time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.vllm import environment

MADE_FROM = (
    *(f"train/{name}.py" for name in ("__main__", "hf", "hf_heads", "export_gguf", "prepare_text")),
    *(f"models/{name}" for name in ("target.gguf", "draft.gguf", "tokenizer.json")),
)


def models_folder(environment_folder: Path) -> Path:
    return environment_folder / "models"


def make_models(folder: Path) -> None:
    """The demo's models as folders, with heads trained in that environment; again only if what makes them has changed."""
    models = models_folder(folder)
    digest = hashlib.sha256()
    for name in MADE_FROM:
        digest.update((environment.ROOT / "demo" / name).read_bytes())
    stamp = models / ".made"
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return
    environment.run("models", [sys.executable, "-m", "demo.train", "--hf", models, "--torch", folder / "bin" / "python"])
    stamp.write_text(digest.hexdigest())


def main() -> int:
    began = time.monotonic()
    folder = environment.default_folder()
    environment.make(folder)
    make_models(folder)
    made = time.monotonic()
    told = {"SPECWEB_TEST_VLLM": str(environment.script(folder)), "SPECWEB_TEST_VLLM_MODELS": str(models_folder(folder))}
    pytest = [sys.executable, "-m", "pytest", "-s", "tests/vllm", *sys.argv[1:]]
    code = subprocess.run(pytest, cwd=environment.ROOT, env={**os.environ, **told}, check=False).returncode
    print(f"environment and models {made - began:.0f} s, experiments {time.monotonic() - made:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
