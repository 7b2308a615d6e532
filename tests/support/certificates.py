"""A certificate authority of a test's own, and certificates of servers on loopback."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM."""

    ca: Path
    certificate: Path
    key: Path

    @property
    def chain(self) -> Path:
        """Certificate and key in one file, as HAProxy reads them."""
        return self.certificate.with_name("server.pem")


def make_certificates(folder: Path, *names: str) -> Certificates:
    """A new authority, and a certificate of it for ``names``, ``localhost`` and 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP256R1())
    ca = _sign("test authority", authority, "test authority", authority, [], is_ca=True)
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = [x509.DNSName(name) for name in ("localhost", *names)]
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = _sign("localhost", key, "test authority", authority, [*hosts, here], is_ca=False)
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    pem = serialization.Encoding.PEM
    made.ca.write_bytes(ca.public_bytes(pem))
    made.certificate.write_bytes(certificate.public_bytes(pem))
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    made.chain.write_bytes(made.certificate.read_bytes() + made.key.read_bytes())
    return made


def _sign(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    by: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    *,
    is_ca: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(by, hashes.SHA256())
