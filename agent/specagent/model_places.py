"""Where a model that was found in a folder really lies: a link must not lead out of what the owner offers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .config import Config


def leads_to(files: Iterable[Path], config: Config) -> Path | None:
    """The first of a model's files that lies in none of the model folders and is none that the owner names; None if all are in.

    A folder may itself be a link, since its name is the owner's own.
    """
    folders = [_real(f) for f in config.model_folders]
    named = {_real(m.path) for m in config.models}
    for file in files:
        if not os.path.lexists(file):  # which is told when it is read: a name may promise very many parts
            return None
        there = _real(file)
        if not any(there.is_relative_to(f) for f in folders) and not any(there == n or there.is_relative_to(n) for n in named):
            return there
    return None


def _real(path: Path) -> Path:
    """Unlike ``resolve()`` without an error for links that lead to each other, which then can't be read."""
    return Path(os.path.realpath(path))
