"""Signs webhook bodies: HMAC-SHA256 over timestamp, idempotency key and body. Pure."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

TIMESTAMP: Final = "Paceline-Timestamp"
SIGNATURE: Final = "Paceline-Signature"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
TOLERANCE_S: Final = 300
"""Maximum age of a message that a receiver accepts, against replays."""

_SECONDS: Final = re.compile(r"[0-9]{1,15}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""Without dots, which separate the signed parts."""


def signed(secret: str, key: str, body: bytes, now_s: int) -> dict[str, str]:
    """The headers of a body sent at ``now_s`` with this Idempotency-Key."""
    return {
        IDEMPOTENCY_KEY: key,
        TIMESTAMP: str(now_s),
        SIGNATURE: f"v1={_digest(secret, str(now_s), key, body)}",
    }


def verified(secret: str, body: bytes, headers: Mapping[str, str], now_s: float) -> bool:
    """Whether body and key were signed with the secret, and sent within the tolerance.

    Accepts any headers: names in any case, and malformed values, for which it returns False.
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
