"""Makes the training text of the demo models: the Python standard library's own source, and counting sequences.

    python demo/train/prepare_text.py WORK

Writes ``WORK/code.txt`` and ``WORK/count.txt``, documents joined by the end-of-text mark. The files of demo/models were
made from Python 3.11.7 (about 9 MB; PSF License 2).
"""

from __future__ import annotations

import argparse
import random
import sysconfig
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
#: Parts of the library that are no prose of programmers: tests, tables, a program of its own, another grammar.
LEFT_OUT = ("site-packages", "/test", "idlelib", "encodings", "lib2to3")
N_SEQUENCES = 3000


def source_files(library: Path) -> list[Path]:
    """Modules of the library and of its packages, one level deep, in a fixed order."""
    found = [*library.glob("*.py"), *library.glob("*/*.py")]
    return sorted(f for f in found if not any(part in str(f) for part in LEFT_OUT))


def counting_sequence(rng: random.Random) -> str:
    """For example ``Count from 7 to 9:`` and then ``7, 8, 9``, with one of three separators."""
    first = rng.randint(1, 60)
    last = first + rng.randint(10, 80)
    separator = rng.choice([" ", ", ", "\n"])
    return f"Count from {first} to {last}:\n" + separator.join(map(str, range(first, last + 1))) + "\n"


def write(work: Path) -> None:
    """``code.txt`` and ``count.txt``."""
    work.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    code = [f.read_text(encoding="utf-8", errors="ignore") for f in source_files(Path(sysconfig.get_paths()["stdlib"]))]
    counts = [counting_sequence(rng) for _ in range(N_SEQUENCES)]
    (work / "code.txt").write_text(f"\n{END_OF_TEXT}".join(code), encoding="utf-8")
    (work / "count.txt").write_text(END_OF_TEXT.join(counts), encoding="utf-8")
    print(f"{len(code)} files, {sum(map(len, code)) / 1e6:.1f} MB of code, {len(counts)} sequences")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the training text of the demo models.")
    parser.add_argument("work", type=Path, help="folder for the text")
    write(parser.parse_args().work)


if __name__ == "__main__":
    main()
