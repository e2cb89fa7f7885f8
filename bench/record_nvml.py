"""Records what NVIDIA's library answers to the sampler on a real card, as fixtures for tests where there is none.

    python -m bench.record_nvml OUT.jsonl [SECONDS] [--pid PID]

Let a load run on the card meanwhile (``bench/gpu_check.sh`` does), and give its process with ``--pid``. The first line
describes the recording: driver, cards, date. Each other line is one call: its name, the card's number, its arguments and
the answer, or the library's error code. UUIDs are replaced by numbers, and so are processes, but the one that was named;
nothing else of the machine is written. ``tests/agent/fake_nvml.py`` plays a recording back.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from specagent.gpus import Gpus
from specagent.sampler import INTERVAL_S, THOROUGH

#: Fields of the library's structures that the sampler reads.
FIELDS = ("total", "used", "gpu", "pid", "usedGpuMemory", "smUtil", "timeStamp")


class Recording:
    """The library's module; each call that asks a card goes to the file too."""

    def __init__(self, nvml: Any, out: TextIO, pid: int = 0) -> None:
        self._nvml, self._out, self._pid = nvml, out, pid
        self._cards: list[Any] = []
        self._pids: dict[int, int] = {}

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        self._cards += [None] * (index + 1 - len(self._cards))
        self._cards[index] = handle
        return handle

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._nvml, name)
        return self._recorded(name, value) if name.startswith("nvmlDeviceGet") and name != "nvmlDeviceGetCount" else value

    def _recorded(self, name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def call(handle: Any, *args: Any) -> Any:
            device = next(i for i, card in enumerate(self._cards) if card is handle)
            told = [] if name == "nvmlDeviceGetProcessUtilization" else list(args)
            entry: dict[str, Any] = {"at_s": round(time.monotonic(), 4), "call": name, "device": device, "args": told}
            try:
                answer = ask(handle, *args)
            except self._nvml.NVMLError as error:
                self._write(entry | {"error": getattr(error, "value", None)})
                raise
            self._write(entry | {"answer": f"GPU-{device}" if name == "nvmlDeviceGetUUID" else self._plain(answer)})
            return answer

        return call

    def _write(self, entry: dict[str, Any]) -> None:
        self._out.write(json.dumps(entry) + "\n")

    def _plain(self, answer: Any) -> Any:
        if isinstance(answer, bytes):
            return answer.decode()
        if answer is None or isinstance(answer, int | float | str):
            return answer
        if isinstance(answer, list | tuple):
            return [self._plain(a) for a in answer]
        found = {f: getattr(answer, f) for f in FIELDS if hasattr(answer, f)}
        if "pid" in found and found["pid"] != self._pid:
            found["pid"] = self._pids.setdefault(found["pid"], 100_001 + len(self._pids))
        return found


def record(nvml: Any, out: TextIO, seconds: float, pid: int) -> int:
    """Looks as the sampler does, for so long; returns the number of cards."""
    recording = Recording(nvml, out, pid)
    gpus = Gpus(recording)
    header = {"recorded_at": datetime.now(UTC).isoformat(), "pid": pid, "cards": [d.name for d in gpus.devices()]}
    header |= {"driver": next((d.driver for d in gpus.devices()), ""), "sensors": gpus.sensors()}
    out.write(json.dumps(header) + "\n")
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        thorough = n % THOROUGH == 0
        gpus.sample([pid], processes=thorough, rates=thorough)
        n += 1
        time.sleep(INTERVAL_S)
    return len(gpus.cards)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=20.0)
    parser.add_argument("--pid", type=int, default=os.getpid(), help="the process whose memory is looked for")
    args = parser.parse_args()
    try:
        import pynvml
    except ImportError:
        print("NVIDIA's Python module is not here: pip install nvidia-ml-py", file=sys.stderr)
        return 1
    with args.out.open("w", encoding="utf-8") as out:
        n = record(pynvml, out, args.seconds, args.pid)
    if not n:
        args.out.unlink()
        print("no NVIDIA GPU was seen; nothing is recorded", file=sys.stderr)
        return 1
    print(f"{n} cards, {args.seconds:g} s: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
