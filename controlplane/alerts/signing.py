"""The signature of a webhook's body: HMAC-SHA256 over its time, its key and itself. Pure."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

TIMESTAMP: Final = "Paceline-Timestamp"
SIGNATURE: Final = "Paceline-Signature"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
TOLERANCE_S: Final = 300
"""The maximum age of a message for a receiver: an older one may be a replay."""

_SECONDS: Final = re.compile(r"[0-9]{1,15}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""Without a dot, which ends it in what is signed."""


def signed(secret: str, key: str, body: bytes, now_s: int) -> dict[str, str]:
    """The headers of a body that is sent now, under this Idempotency-Key."""
    return {
        IDEMPOTENCY_KEY: key,
        TIMESTAMP: str(now_s),
        SIGNATURE: f"v1={_digest(secret, str(now_s), key, body)}",
    }


def verified(secret: str, body: bytes, headers: Mapping[str, str], now_s: float) -> bool:
    """Whether body and key were signed with the secret, and sent within the tolerance.

    Any headers are answered: names in any case, and values that no sender of this project would send.
    """
    given = {name.lower(): value for name, value in headers.items()}
    timestamp, key, signature = (given.get(name.lower(), "") for name in (TIMESTAMP, IDEMPOTENCY_KEY, SIGNATURE))
    if _SECONDS.fullmatch(timestamp) is None or _KEY.fullmatch(key) is None:
        return False
    if abs(now_s - int(timestamp)) > TOLERANCE_S:
        return False
    expected = f"v1={_digest(secret, timestamp, key, body)}"
    return hmac.compare_digest(signature.encode(errors="backslashreplace"), expected.encode())


def _digest(secret: str, timestamp: str, key: str, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.{key}.".encode() + body, hashlib.sha256).hexdigest()
