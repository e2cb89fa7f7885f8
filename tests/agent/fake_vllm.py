"""A small environment that looks like an installed vLLM: a real interpreter, made-up distributions, and a script that prints a recorded help."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

HELP = Path(__file__).resolve().parents[1] / "logs/vllm/v0.32.0.help-all.txt"
_SCRIPT = """#!{python}
import sys
from vllm import main
sys.exit(main())
"""
_PACKAGE = """
import pathlib, sys
def main():
    with open(pathlib.Path(__file__).with_name("asked.txt"), "a") as f:
        f.write(" ".join(sys.argv[1:]) + "\\n")
    if sys.argv[1:] != ["serve", "--help=all"]:
        return "the test asks for nothing else"
    print(open({help!r}).read())
"""


def make(folder: Path, *, version: str = "0.32.0+cpu", provider: str = "vllm") -> Path:
    """Returns its script. ``provider``: the distribution that holds the code; another than ``vllm`` leaves that one empty."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    code = {
        "vllm/__init__.py": _PACKAGE.format(help=str(HELP)),
        "vllm/_version.py": "__commit_id__ = commit_id = 'g0123456789'\n",
        "vllm/model_executor/models/registry.py": '_TEXT = {\n    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),\n}\n',
    }
    install(site, "vllm", version, code if provider == "vllm" else {})
    if provider != "vllm":
        install(site, provider, version.partition("+")[0], code)
    install(site, "torch", "2.13.0", {"torch/version.py": "cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"})
    script = folder / "bin" / "vllm"
    script.write_text(_SCRIPT.format(python=folder / "bin" / "python"))
    script.chmod(0o755)
    return script


def install(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    """As an installer leaves it: files, and RECORD with their hashes, a script that names this place, and itself."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    rows = []
    for path, text in {**files, f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n"}.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    rows += [f"../../../bin/{name},sha256={hashlib.sha256(str(site).encode()).hexdigest()},300", f"{info}/RECORD,,"]
    (site / info / "RECORD").write_text("\n".join(rows) + "\n")


def site_of(script: Path) -> Path:
    return next((script.parents[1] / "lib").glob("python*/site-packages"))


def times_asked(script: Path) -> int:
    asked = site_of(script) / "vllm/asked.txt"
    return len(asked.read_text().splitlines()) if asked.exists() else 0
