#!/usr/bin/env bash
# Proves on a real NVIDIA card what can't be proved without one: sampler, spill and throttle checks, an engine as a process.
# At most 10 minutes. Changes no setting of the card. Ends with 0 if all of it was shown, 1 if something is wrong, 2 if there
# is no card, 3 if a part could not be shown here; each part has its line, and OUT_FOLDER/result.json holds them.
#
#   bench/gpu_check.sh [OUT_FOLDER]
#
# Needs a driver, and PYTHON (default: this clone's .venv) with the agent's packages and nvidia-ml-py; if it lacks them, they
# are installed into OUT_FOLDER/venv, from WHEELS=FOLDER where there is no network. For the part with an engine:
# LLAMA_SERVER, a build that uses the card, and MODEL, a GGUF file.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-gpu-check}"
mkdir -p "$out"

command -v nvidia-smi >/dev/null && nvidia-smi -L >"$out/cards.txt" 2>&1 || true
if ! grep -q '^GPU ' "$out/cards.txt" 2>/dev/null; then
  echo "gpu_check: no NVIDIA GPU is here (nvidia-smi lists none). Nothing was shown." >&2
  exit 2
fi

export PYTHONPATH="$PWD/agent:$PWD${PYTHONPATH:+:$PYTHONPATH}"
python="${PYTHON:-.venv/bin/python}"
if ! "$python" -c 'import pynvml, yaml, specagent.cli' 2>/dev/null; then
  python3 -m venv "$out/venv"
  python="$out/venv/bin/python"
  if [ -n "${WHEELS:-}" ]; then
    "$python" -m pip install -q --no-index --find-links "$WHEELS" pydantic numpy scipy httpx h11 psutil zstandard pyyaml gguf nvidia-ml-py
  else
    "$python" -m pip install -q './agent[nvidia]'
  fi
fi

# TERM at 9 minutes, KILL half a minute later
exec timeout --kill-after=30 540 "$python" -m bench.gpu_check "$out"
