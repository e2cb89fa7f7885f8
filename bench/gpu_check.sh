#!/usr/bin/env bash
# Proves on a real NVIDIA card what can't be proved without one: sampler, spill and throttle checks, an engine as a process.
# At most 10 minutes. Changes no setting of the card. Ends with 0 only if all of it was shown; what was left out is named.
#
#   bench/gpu_check.sh [OUT_FOLDER]
#
# Needs a driver and, if this clone has no .venv, python3 with the packages of agent/pyproject.toml and nvidia-ml-py
# (WHEELS=FOLDER installs them from a folder without a network). For the part with an engine: LLAMA_SERVER, a build that uses
# the card, and MODEL, a GGUF file; without them that part is "not shown", and the result 3.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-gpu-check}"
mkdir -p "$out"

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | tee "$out/cards.txt" | grep -q GPU; then
  echo "gpu_check: no NVIDIA GPU is here (nvidia-smi lists none). Nothing was shown." >&2
  exit 2
fi

python="${PYTHON:-.venv/bin/python}"
if [ ! -x "$python" ]; then
  python3 -m venv --system-site-packages "$out/venv"
  python="$out/venv/bin/python"
fi
if ! PYTHONPATH=agent "$python" -c 'import pynvml, specagent.cli' 2>/dev/null; then
  if [ -n "${WHEELS:-}" ]; then
    "$python" -m pip install -q --no-index --find-links "$WHEELS" pydantic numpy scipy httpx h11 psutil zstandard pyyaml gguf nvidia-ml-py
  else
    "$python" -m pip install -q './agent[nvidia]'
  fi
fi

export PYTHONPATH="agent:.${PYTHONPATH:+:$PYTHONPATH}"
# GNU timeout: TERM at 9 minutes, KILL half a minute later
exec timeout --kill-after=30 540 "$python" -m bench.gpu_check "$out"
