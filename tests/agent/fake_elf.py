"""Fake engine builds: tiny programs for x86-64 Linux that answer each flag in a set way, since no real build crashes on demand.

What they print as help is recorded from a real build, or made from it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_BASE = 0x400000
_HEADERS = 64 + 56
_HANG = b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"  # pause() for ever
_ENDS = {"sigill": b"\x0f\x0b", "sigsegv": b"\x31\xc0\x89\x00", "hang": _HANG}


@dataclass(frozen=True)
class Reply:
    """What is printed to standard output, and how the program then ends: an exit code, ``sigill``, ``sigsegv`` or ``hang``."""

    text: str = ""
    end: int | str = 0


def write_program(path: Path, replies: Mapping[str, Reply]) -> Path:
    """``replies`` by the third letter of the first argument: ``v`` for --version, ``h`` for --help, ``l`` for --list-devices."""
    head = b"\x48\x8b\x74\x24\x10\x8a\x46\x02"  # mov rsi, argv[1]; mov al, [rsi+2]
    choices = [(letter.encode(), reply) for letter, reply in replies.items()]
    bodies = [len(_block(reply, 0)) for _, reply in choices]
    tests_size = len(choices) * (2 + 6)  # cmp al, letter; je block
    blocks_at = len(head) + tests_size + len(_end(0))
    text_at = _BASE + _HEADERS + blocks_at + sum(bodies)
    jumps, blocks, texts = b"", b"", b""
    for i, (letter, reply) in enumerate(choices):
        here = len(head) + (i + 1) * 8
        jumps += b"\x3c" + letter + b"\x0f\x84" + struct.pack("<i", blocks_at + sum(bodies[:i]) - here)
        blocks += _block(reply, text_at + len(texts))
        texts += reply.text.encode()
    code = head + jumps + _end(0) + blocks + texts
    size = _HEADERS + len(code)
    elf = b"\x7fELF\x02\x01\x01" + bytes(9)
    elf += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    elf += struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    path.write_bytes(elf + code)
    path.chmod(0o755)
    return path


def _block(reply: Reply, text_at: int) -> bytes:
    n = len(reply.text.encode())
    write = b"\xb8\x01\x00\x00\x00\xbf\x01\x00\x00\x00\x48\xbe" + struct.pack("<Q", text_at) + b"\xba" + struct.pack("<I", n) + b"\x0f\x05"
    return write + (_ENDS[reply.end] if isinstance(reply.end, str) else _end(reply.end))


def _end(code: int) -> bytes:
    return b"\xb8\x3c\x00\x00\x00\xbf" + struct.pack("<I", code) + b"\x0f\x05"
