"""Credentials of processes, derived from the job's key, so that no process can impersonate another.

``process_key`` authenticates the control socket of one process instance. ``data_key`` authenticates one worker to one
server, which can derive it from its own key; ``peer_key`` does the same between two servers. For encryption,
``authority_seed`` is the private key that signs the certificates of the job's processes, ``certificate_seed`` that of
one process (both Ed25519). Ranks of a script that agents start attach with ``ranks_token``.
"""

import hashlib
import hmac
from typing import Final

from controlplane.protocol.orders import Role

JOB_PREFIX: Final = "plj_"
"""Distinguishes a job's token from a user's token, and lets secret scanners find it."""


def process_key(job_key: bytes, role: Role, index: int, instance: str) -> bytes:
    """The credential of one process instance: 32 bytes."""
    return _derive(job_key, "process", role, str(index), instance)


def data_key(server_key: bytes, rank: int, worker_instance: str) -> bytes:
    """What worker ``rank`` proves to the server that owns ``server_key`` (its process key): 32 bytes."""
    return _derive(server_key, "data", str(rank), worker_instance)


def peer_key(server_key: bytes, index: int, server_instance: str) -> bytes:
    """What server ``index`` proves to the server that owns ``server_key`` (its process key): 32 bytes."""
    return _derive(server_key, "peer", str(index), server_instance)


def authority_seed(job_key: bytes) -> bytes:
    """The private key that signs certificates of the job's processes; only the control plane has it: 32 bytes."""
    return _derive(job_key, "authority")


def certificate_seed(process_key: bytes) -> bytes:
    """The private key of the certificate of the process that owns ``process_key``: 32 bytes."""
    return _derive(process_key, "certificate")


def checkpoint_name(job_key: bytes) -> str:
    """Distinguishes the checkpoints of this job from those of other jobs with the same number; it reveals no secret."""
    return _derive(job_key, "checkpoints").hex()[:12]


def instance_name(salt: bytes, title: str, incarnation: int, life: int) -> str:
    """The name of a process instance, ``w3.0.1.9f86d081884c7d65``; without a salt only counted, ``w3.0.1``."""
    counted = f"{title}.{incarnation}.{life}"
    return f"{counted}.{_derive(salt, 'instance', counted).hex()[:16]}" if salt else counted


def ranks_token(job_key: bytes) -> str:
    """The job's token that agents pass to the ranks of its script."""
    return JOB_PREFIX + _derive(job_key, "ranks").hex()


def proof(key: bytes, nonce: bytes) -> bytes:
    """The answer to a challenge, computed with ``key``: 32 bytes."""
    return hmac.digest(key, nonce, hashlib.sha256)


def secret_digest(secret: str) -> str:
    """The digest that is stored and logged instead of a long random secret: 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(expected: bytes, given: bytes) -> bool:
    """Whether two credentials are equal, in constant time."""
    return hmac.compare_digest(expected, given)


def _derive(key: bytes, *parts: str) -> bytes:
    return hmac.digest(key, "\x00".join(parts).encode(), hashlib.sha256)
