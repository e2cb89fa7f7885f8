"""One canonical form of JSON, so that equal content has an equal hash on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no white space; refuses NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_of(value: Any) -> str:
    """Hex SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def manifest_hash(files: dict[str, str]) -> str:
    """Hash of a manifest {name: sha256}: of the sorted list of (name, sha256) pairs."""
    return sha256_of(sorted(files.items()))
