"""The demo's models in the form that vLLM reads.

    python -m demo.train --hf OUT [--torch PYTHON] [--seconds S]

Without ``--torch`` the target and its draft model are written, which takes a second and needs nothing that this project has not.
With the interpreter of an environment that has PyTorch and transformers (that of ``make test-vllm`` has) two heads are trained for
S seconds each: ``mimo``, the target with a multi-token-prediction head in MiMo's shape, and ``eagle``, a one-layer head by itself.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from . import hf, prepare_text

SECONDS = 100.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.train", description="Write the demo's models as folders that vLLM reads.")
    parser.add_argument("--hf", type=Path, required=True, metavar="OUT", help="folder that takes the models")
    parser.add_argument("--torch", type=Path, metavar="PYTHON", help="an interpreter that has PyTorch: heads for mtp and eagle too")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"training of each head (default {SECONDS:g})")
    given = parser.parse_args()
    out = given.hf
    hf.write_pair(out)
    print(f"{out}: target, draft", flush=True)
    if given.torch:
        work = out / "work"
        prepare_text.write(work)
        command = [str(given.torch), "-m", "demo.train.hf_heads", str(out), str(work), "--seconds", str(given.seconds)]
        ended = subprocess.run(command, cwd=hf.ROOT, check=False)
        if ended.returncode != 0:
            sys.exit(f"the heads could not be trained: {' '.join(command)} ended with {ended.returncode}; its message stands above")
        config, weights = hf.checkpoint(hf.GGUFS / "target.gguf")
        config, weights = hf.as_mimo(config, weights)
        hf.write_folder(out / "mimo", config, weights | hf.read_arrays(work / "mtp.npz"))
        head = hf.read_arrays(work / "eagle.npz")
        (out / "eagle").mkdir(exist_ok=True)
        plain, _ = hf.checkpoint(hf.GGUFS / "target.gguf")
        hf.write_folder(out / "eagle", {**plain, "num_hidden_layers": 1}, head)
        print(f"{out}: mimo, eagle", flush=True)


if __name__ == "__main__":
    main()
