"""Encrypts job keys and the addresses of alert targets in the database, so that a copy of it does not reveal them.

The key is derived from ``SECRET_KEY``. A model names its encrypted columns in ``SEALED``, for ``manage.py reseal``.
``SECRET_KEY`` encrypts; it and each of ``SECRET_KEY_FALLBACKS`` can decrypt.
"""

import base64
from functools import lru_cache
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

INFO: Final = b"paceline.job-key"


class SealBroken(Exception):
    """A stored key or address cannot be decrypted; the text gives the cure."""


def seal(key: bytes) -> bytes:
    """The encrypted form of a key."""
    return _box().encrypt(key)


def unseal(stored: bytes | memoryview) -> bytes:
    """Decrypt the key.

    Raises:
        SealBroken: if it was stored under a ``SECRET_KEY`` that is not configured.
    """
    try:
        return _box().decrypt(bytes(stored))
    except InvalidToken:
        raise SealBroken(
            "a key or address in the database cannot be decrypted: it was stored under another SECRET_KEY; set the "
            "previous one in SECRET_KEY_FALLBACKS, then run manage.py reseal"
        ) from None


def resealed(stored: bytes | memoryview) -> bytes:
    """The same key, encrypted under the current ``SECRET_KEY``."""
    return seal(unseal(stored))


def is_current(stored: bytes | memoryview) -> bool:
    """Whether the key is encrypted with the current ``SECRET_KEY``."""
    try:
        _box_of((settings.SECRET_KEY,)).decrypt(bytes(stored))
    except InvalidToken:
        return False
    return True


def _box() -> MultiFernet:
    return _box_of((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=8)
def _box_of(secrets: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(base64.urlsafe_b64encode(_derived(secret))) for secret in secrets])


def _derived(secret: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=INFO).derive(secret.encode())
