"""A process that holds memory on an NVIDIA card and keeps it busy, through the driver's own library alone.

    python -m bench.gpu_load BYTES SECONDS [--idle]

Prints "ready" when the memory is there, then fills it over and over (with ``--idle``: holds it only) until the time is up.
"""

from __future__ import annotations

import ctypes
import sys
import time


class CudaFailed(RuntimeError):
    pass


def _checked(name: str, code: int) -> None:
    if code:
        raise CudaFailed(f"{name} answers {code}")


def hold(n_bytes: int, seconds: float, *, busy: bool) -> None:
    """Takes the memory with one plain allocation. Raises OSError without a driver, :class:`CudaFailed`."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _checked("cuInit", cuda.cuInit(0))
    _checked("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
    _checked("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
    try:
        _checked("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n_bytes)))
        print("ready", flush=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not busy:
                time.sleep(0.1)
                continue
            for value in range(20):
                _checked("cuMemsetD8", cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(value), ctypes.c_size_t(n_bytes)))
            _checked("cuCtxSynchronize", cuda.cuCtxSynchronize())
    finally:
        cuda.cuCtxDestroy_v2(context)


if __name__ == "__main__":
    hold(int(sys.argv[1]), float(sys.argv[2]), busy="--idle" not in sys.argv)
