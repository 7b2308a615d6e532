"""Copies the audit trail to a syslog server: RFC 5424 over UDP, TCP (RFC 6587), TLS (RFC 5425) or a Unix socket.

The position in the chain is stored, so an outage of the server or of the control plane leaves no gap:
over TCP and TLS unconfirmed entries are sent again. An entry may arrive twice, with the same ``sequence``.
"""

import logging
import os
import socket
import ssl
from contextlib import suppress
from typing import Any, Final

from django.conf import settings

from controlplane.people.audit_chain import exported, line_of
from controlplane.people.configured import SyslogTarget
from controlplane.people.models import AuditCopy

PRIORITY: Final = 13 * 8 + 5
"""Facility 13 (log audit), severity notice."""

MOST_BYTES: Final = 8_000
"""Largest message: many servers truncate longer ones. The detail of a longer entry is replaced by its size."""

AT_ONCE: Final = 200
TIMEOUT_S: Final = 5.0
NAME: Final = "syslog"

logger = logging.getLogger(__name__)


def copy_pending() -> int:
    """Send the entries that were sealed since the last call; returns their number. The next call retries a failure."""
    target: SyslogTarget | None = settings.AUDIT_SYSLOG
    if target is None:
        return 0
    place, _ = AuditCopy.objects.get_or_create(name=NAME)
    documents = list(exported(place.sequence, AT_ONCE))
    if not documents:
        return 0
    try:
        send(target, [message_of(document) for document in documents])
    except OSError as error:
        logger.warning("the audit trail is not copied: %s at %s: %s", target.transport, target.host, error)
        return 0
    AuditCopy.objects.filter(name=NAME).update(sequence=documents[-1]["sequence"])
    return len(documents)


def message_of(document: dict[str, Any]) -> bytes:
    """An entry as a message of RFC 5424."""
    text = line_of(document)
    if len(text.encode()) > MOST_BYTES:
        text = line_of({**document, "detail": {"omitted_bytes": len(line_of(document["detail"]).encode())}})
    at = document["at"].replace("+00:00", "Z")
    head = f"<{PRIORITY}>1 {at} {socket.gethostname()[:255] or '-'} paceline {os.getpid()} audit - "
    return head.encode("ascii", "replace") + b"\xef\xbb\xbf" + text.encode()


def send(target: SyslogTarget, messages: list[bytes]) -> None:
    """Send all messages.

    Raises:
        OSError: if the server does not accept them.
    """
    if target.transport in {"udp", "unix"}:
        _send_datagrams(target, messages)
        return
    with socket.create_connection((target.host, target.port), timeout=TIMEOUT_S) as plain:
        frames = b"".join(b"%d %b" % (len(message), message) for message in messages)
        if target.transport == "tls":
            with _encrypted(plain, target.host) as stream:
                stream.sendall(frames)
                with suppress(OSError):  # some close the connection without a TLS close
                    stream.unwrap()
            return
        plain.sendall(frames)
        plain.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):  # some keep their end open
            while plain.recv(4096):  # until they have read to the end: a reset before that is an error
                pass


def _encrypted(plain: socket.socket, host: str) -> ssl.SSLSocket:
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def _send_datagrams(target: SyslogTarget, messages: list[bytes]) -> None:
    family: int
    address: Any
    if target.transport == "unix":
        family, address = socket.AF_UNIX, target.host
    else:
        family, _, _, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(TIMEOUT_S)
        for message in messages:
            sender.sendto(message, address)
