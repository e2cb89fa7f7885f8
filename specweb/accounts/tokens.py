"""Secrets that are shown once: made here, stored as their hash only."""

from __future__ import annotations

import hashlib
import secrets


def new_secret(kind: str) -> tuple[str, str]:
    """A new secret such as ``swh_…`` (256 bits) and its hash."""
    secret = f"{kind}_{secrets.token_urlsafe(32)}"
    return secret, hash_of(secret)


def hash_of(secret: str) -> str:
    """Hex SHA-256. The secrets are long and random, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()
