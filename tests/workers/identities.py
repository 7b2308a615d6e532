"""Certificates for processes of a test, as the control plane makes them."""

from datetime import datetime
from typing import Any

from controlplane.protocol import keys
from controlplane.protocol.orders import Role
from controlplane.runtime.certificates import authority_of, certificate_of
from workers.transport.encryption import Encryption, Identity

JOB_KEY = b"job key of the tests"


def certified(
    role: Role, index: int, instance: str, *, job_key: bytes = JOB_KEY, listens: bool | None = None
) -> dict[str, Any]:
    """The fields of an order that have to do with it."""
    key = keys.process_key(job_key, role, index, instance)
    return {
        "key": key.hex(),
        "certificate": certificate_of(job_key, key, role, instance, listens=listens),
        "authority": authority_of(job_key),
    }


def identity(
    role: Role, index: int, instance: str, *, job_key: bytes = JOB_KEY, now: datetime | None = None
) -> Identity:
    key = keys.process_key(job_key, role, index, instance)
    return Identity(
        certificate=certificate_of(job_key, key, role, instance, now=now),
        seed=keys.certificate_seed(key),
        authority=authority_of(job_key),
    )


def serving(index: int = 0, instance: str = "s0") -> Encryption:
    """That of a server which encrypts."""
    return Encryption(identity("server", index, instance), encrypts=True)


def calling(rank: int, instance: str, *, role: Role = "worker") -> Encryption:
    """That of a process which connects to such servers."""
    return Encryption(identity(role, rank, instance))
