"""The signature of a webhook's body: HMAC-SHA256 over its time and itself. Pure."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

TIMESTAMP: Final = "Paceline-Timestamp"
SIGNATURE: Final = "Paceline-Signature"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
TOLERANCE_S: Final = 300
"""How old a message may be for a receiver: an older one was recorded and sent again by somebody else."""


def signed(secret: str, body: bytes, now_s: int) -> dict[str, str]:
    """The headers of a body that is sent now."""
    return {TIMESTAMP: str(now_s), SIGNATURE: f"v1={_digest(secret, body, str(now_s))}"}


def verified(secret: str, body: bytes, headers: Mapping[str, str], now_s: float) -> bool:
    """Whether the body is from somebody who has the secret, and was sent within the tolerance."""
    timestamp = headers.get(TIMESTAMP, "")
    if not (timestamp.isascii() and timestamp.isdecimal() and abs(now_s - int(timestamp)) <= TOLERANCE_S):
        return False
    return hmac.compare_digest(headers.get(SIGNATURE, ""), f"v1={_digest(secret, body, timestamp)}")


def _digest(secret: str, body: bytes, timestamp: str) -> str:
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
