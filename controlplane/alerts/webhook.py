"""Sends one signed body to a webhook. No database: several run side by side in threads."""

import ipaddress
import socket
import time
from typing import Final
from urllib.parse import urlsplit

import httpx

from controlplane.alerts.signing import IDEMPOTENCY_KEY, signed
from controlplane.alerts.targets import refused
from controlplane.protocol.text import printable

TIMEOUT_S: Final = 10.0
"""To connect, to send, and for each part of the answer."""

MOST_ANSWER: Final = 300
"""Bytes of an error's body that are kept, to be shown."""

MOST_WAIT_S: Final = 3_600.0
PASSING: Final = frozenset({408, 425, 429})
"""Statuses below 500 that say that it may work later."""


class DeliveryFailed(Exception):
    """The message did not arrive; the text says why. It is tried again, unless that is pointless."""

    def __init__(self, why: str, *, for_good: bool = False, wait_s: float = 0.0) -> None:
        self.for_good, self.wait_s = for_good, wait_s
        super().__init__(why)


def send(*, url: str, secret: str, key: str, body: bytes) -> None:
    """POST the body once.

    Raises:
        DeliveryFailed: unless the answer's status is 2xx.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = resolved(host, parts.port or (443 if parts.scheme == "https" else 80))
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": "paceline-alerts/1",
        IDEMPOTENCY_KEY: key,
        **signed(secret, body, int(time.time())),
    }
    pinned = httpx.URL(url).copy_with(host=address)
    try:
        with (
            httpx.Client(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S) as client,
            client.stream("POST", pinned, content=body, headers=headers, extensions={"sni_hostname": host}) as reply,
        ):
            _check(reply)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        why = str(error).replace(address, host) or type(error).__name__
        raise DeliveryFailed(f"{host}: {printable(why)[:300]}") from None


def resolved(host: str, port: int) -> str:
    """The address to connect to. The very address that was checked is used: the name may change its meaning after.

    Raises:
        DeliveryFailed: if there is none, or it may not be connected to.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DeliveryFailed(f"the host {host} has no address ({error.strerror or error})") from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        if why := refused(address):
            raise DeliveryFailed(f"the host {host} is at {address}; expected {why}", for_good=True)
    return str(addresses[0])


def _check(reply: httpx.Response) -> None:
    if reply.is_success:
        return
    if reply.is_redirect:
        raise DeliveryFailed(f"status {reply.status_code}: redirects are not followed", for_good=True)
    said = next(reply.iter_bytes(MOST_ANSWER), b"")[:MOST_ANSWER].decode(errors="replace")
    why = f"status {reply.status_code}" + (f": {printable(' '.join(said.split()))}" if said.strip() else "")
    is_passing = reply.status_code >= 500 or reply.status_code in PASSING
    raise DeliveryFailed(why, for_good=not is_passing, wait_s=_wait_s(reply.headers.get("Retry-After", "")))


def _wait_s(text: str) -> float:
    return min(float(text), MOST_WAIT_S) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0
