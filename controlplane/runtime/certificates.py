"""TLS certificates of a job's processes, for the connections over which they exchange parameters.

The authority that signs them belongs to the job and is derived from its key, so that every control plane process has
the same one and none has to be stored; a process of another job cannot have a certificate of it. A certificate names
one process instance.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.protocol.keys import authority_seed, certificate_seed
from controlplane.protocol.orders import Role

VALID: Final = timedelta(days=365)
"""Validity from the start of a process; one that runs longer can no longer connect."""

SKEW: Final = timedelta(days=1)
"""A certificate is valid from this long before its issue, since clocks of machines differ."""

AUTHORITY_FROM: Final = datetime(2020, 1, 1, tzinfo=UTC)
AUTHORITY_UNTIL: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""By RFC 5280: no end. Fixed, so that the authority's certificate is the same wherever it is made."""

JOBS: Final = 64
"""Authorities kept in memory."""

_SERIAL: Final = 1
_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Paceline job")])
_NO_USE: Final = dict.fromkeys(
    (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    ),
    False,
)


@lru_cache(maxsize=JOBS)
def authority_of(job_key: bytes) -> bytes:
    """The certificate of the job's authority, in DER; for the same key always the same."""
    key = _authority_key(job_key)
    built = (
        x509.CertificateBuilder(_NAME, _NAME, key.public_key(), _SERIAL, AUTHORITY_FROM, AUTHORITY_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**_NO_USE | {"key_cert_sign": True}), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return built.sign(key, None).public_bytes(Encoding.DER)


def certificate_of(
    job_key: bytes,
    process_key: bytes,
    role: Role,
    instance: str,
    *,
    listens: bool | None = None,
    now: datetime | None = None,
) -> bytes:
    """The certificate of one process instance, in DER.

    It is valid for clients, and if the process ``listens`` also for servers: workers listen only for peer sampling.
    """
    authority, key = _authority_key(job_key), Ed25519PrivateKey.from_private_bytes(certificate_seed(process_key))
    issued = now or datetime.now(UTC)
    serves = role == "server" if listens is None else listens
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if serves else [])]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)])
    serial = x509.random_serial_number()
    built = (
        x509.CertificateBuilder(_NAME, subject, key.public_key(), serial, issued - SKEW, issued + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(instance)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**_NO_USE | {"digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
    )
    return built.sign(authority, None).public_bytes(Encoding.DER)


@lru_cache(maxsize=JOBS)
def _authority_key(job_key: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(authority_seed(job_key))
