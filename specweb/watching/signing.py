"""How a webhook proves that it is ours: HMAC-SHA256 over the moment of sending and the body. See docs/watch.md."""

from __future__ import annotations

import hashlib
import hmac
import secrets

TIMESTAMP, SIGNATURE, DELIVERY, EVENT = "X-SpecWeb-Timestamp", "X-SpecWeb-Signature", "X-SpecWeb-Delivery", "X-SpecWeb-Event"
#: A receiver refuses what is older: who has copied a notice can't send it again later.
WINDOW_S = 300


def new_secret() -> str:
    return "whsec_" + secrets.token_urlsafe(32)


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """``v1=`` and the hexadecimal HMAC-SHA256 of ``timestamp.body``."""
    return "v1=" + hmac.new(secret.encode(), str(timestamp).encode() + b"." + body, hashlib.sha256).hexdigest()
