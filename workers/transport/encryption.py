"""Encryption of the data plane: TLS 1.3, with certificates of the job on both sides, issued by the control plane.

A server that encrypts announces that in its first frame, and continues with TLS. A server that does not is only used on
this machine, or if the owner of the connecting machine allows it; so modifying that first frame gains nothing.
"""

import base64
import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from controlplane.protocol.addresses import is_loopback
from controlplane.protocol.keys import certificate_seed
from controlplane.protocol.orders import PeerAddress, ProcessOrder, ServerAddress
from workers.transport.channel import Channel
from workers.transport.errors import ConnectionClosed, Unauthorised, Unencrypted

_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
"""The bytes before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A process's key and certificates, in DER."""

    certificate: bytes
    seed: bytes
    """Seed of the private key."""
    authority: bytes
    """The job's CA certificate: processes whose certificates it signed are of this job."""

    @classmethod
    def of(cls, order: ProcessOrder) -> "Identity | None":
        """Of an ordered process; None if the control plane did not issue one."""
        if not (order.certificate and order.authority):
            return None
        seed = certificate_seed(bytes.fromhex(order.key))
        return cls(certificate=order.certificate, seed=seed, authority=order.authority)

    def pem(self) -> str:
        """Certificate and private key in the format of ``ssl``."""
        key = base64.b64encode(_PKCS8 + self.seed).decode()
        shown = ssl.DER_cert_to_PEM_cert(self.certificate)
        return f"{shown}-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"

    def __repr__(self) -> str:
        return "Identity()"


class Encryption:
    """How one process encrypts as a server, and when it connects to servers.

    Args:
        identity: None: it has none, and can only use unencrypted connections.
        encrypts: whether it encrypts as a server.
        allows_plain: whether it may exchange parameters unencrypted with other machines.

    Raises:
        Unencrypted: if it must encrypt but has no identity.
    """

    def __init__(self, identity: Identity | None = None, *, encrypts: bool = False, allows_plain: bool = False) -> None:
        self._client = self._server = None
        self.encrypts, self._allows_plain = encrypts, allows_plain
        if identity is not None:
            self._client = _context(ssl.PROTOCOL_TLS_CLIENT, identity)
            self._server = _context(ssl.PROTOCOL_TLS_SERVER, identity)
        elif encrypts:
            raise Unencrypted(
                "this process should encrypt, and its control plane gave it no certificate; "
                "expected a control plane of the same release: update it, or join with --insecure on a private network"
            )

    def accept(self, connected: socket.socket) -> ssl.SSLSocket:
        """The server side of a connection after the frame ENCRYPT; its TLS handshake is not done yet."""
        assert self._server is not None
        return self._server.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)

    def meet(self, channel: Channel, address: ServerAddress | PeerAddress, *, encrypts: bool) -> None:
        """Continue with the process at ``address`` according to its first frame.

        Raises:
            Unauthorised: if its certificate is not that of this process of this job.
            Unencrypted: if it does not encrypt and that is not allowed, or it does and this process cannot.
            ConnectionClosed: if the server disconnects.
        """
        where = address.where
        if not encrypts:
            if not (self._allows_plain or is_loopback(address.host)):
                raise Unencrypted(
                    f"{where} does not encrypt, expected TLS off this machine: join its machine without --insecure, or "
                    "this one with --insecure if the network between is private"
                )
            return
        if self._client is None:
            raise Unencrypted(f"{where} encrypts, and the control plane gave this process no certificate: update it")
        context = self._client
        try:
            channel.encrypt(lambda plain: context.wrap_socket(plain, server_hostname=address.instance))
        except ssl.SSLCertVerificationError as error:
            raise Unauthorised(f"{where}: its certificate is refused: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise refusal(where, error) or ConnectionClosed(f"{where}: {error}") from error
        except OSError as error:
            raise ConnectionClosed(f"{where} ended the connection while it was encrypted: {error}") from error


PLAIN = Encryption()
"""For a process without an identity: only connections on this machine."""


def refusal(where: str, error: BaseException | None) -> Unauthorised | None:
    """The message if ``error`` means that the server rejected this process's certificate."""
    if not isinstance(error, ssl.SSLError) or "ALERT" not in (error.reason or ""):
        return None
    reason = (error.reason or "").lower().replace("_", " ")
    return Unauthorised(f"{where} refuses the certificate of this process: {reason}")


def instances_of(encrypted: ssl.SSLSocket) -> frozenset[str]:
    """The instances that the peer's certificate names."""
    shown: dict[str, Any] = dict(encrypted.getpeercert() or {})
    return frozenset(name for kind, name in shown.get("subjectAltName", ()) if kind == "DNS")


def _context(protocol: int, identity: Identity) -> ssl.SSLContext:
    """A context that presents the identity and accepts only certificates of the same job."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=identity.authority)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # every connection presents its certificate
    with _file(identity.pem()) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """A file in Linux's memory that no other process can open: ``ssl`` reads private keys only from files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("identity")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
