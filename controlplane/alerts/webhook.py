"""Sends one signed body to a webhook. No database: several run side by side in threads."""

import ipaddress
import re
import socket
import time
from html import escape
from typing import Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

import httpx

from controlplane.alerts.signing import signed
from controlplane.alerts.targets import refused
from controlplane.protocol.text import printable

TIMEOUT_S: Final = 10.0
"""To connect, to send, and for each part of the answer."""

MOST_ANSWER: Final = 300
"""Characters of an error's body that are kept, to be shown."""

MOST_READ: Final = 16_384
"""Bytes of it that are read: all that could be a secret is taken out before it is cut."""

LEAST_HIDDEN: Final = 6
"""Parts of a path or query that are shorter than this are no secrets by themselves."""

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
        **signed(secret, key, body, int(time.time())),
    }
    try:
        pinned = httpx.URL(url).copy_with(host=address)
        with (
            httpx.Client(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S) as client,
            client.stream("POST", pinned, content=body, headers=headers, extensions={"sni_hostname": host}) as reply,
        ):
            _check(reply, url)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        why = hidden(str(error).replace(address, host), url) or type(error).__name__
        raise DeliveryFailed(f"{host}: {printable(why)[:MOST_ANSWER]}") from None


def resolved(host: str, port: int) -> str:
    """The address to connect to. The very address that was checked is used: the name may change its meaning after.

    Raises:
        DeliveryFailed: if there is none, or it may not be connected to.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter: a label that is empty or too long
        why = getattr(error, "strerror", None) or error
        raise DeliveryFailed(f"the host {host} has no address ({why})") from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        if why := refused(address):
            raise DeliveryFailed(f"the host {host} is at {address}; expected {why}", for_good=True)
    return str(addresses[0])


def hidden(text: str, url: str) -> str:
    """The text without the URL's path and query, and without their parts: they are often secrets, and are echoed."""
    parts = urlsplit(url)
    whole = {parts.path, parts.query, f"{parts.path}?{parts.query}"}
    pieces = re.split(r"[/?&=;]", f"{parts.path}?{parts.query}#{parts.fragment}".replace("#", "?"))
    secrets = {each for each in whole if len(each) > 1} | {each for each in pieces if len(each) >= LEAST_HIDDEN}
    plain = secrets | {decoded(each) for each in secrets for decoded in (unquote, unquote_plus)}
    quoted = {quoter(each) for each in plain for quoter in (quote, quote_plus, lambda word: quote(word, safe=""))}
    forms = plain | quoted
    forms |= {escape(each) for each in forms} | {each.replace("/", "\\/") for each in forms}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), "…", text, flags=re.IGNORECASE) if forms else text


def _error_text(reply: httpx.Response, url: str) -> str:
    content, until, is_cut = b"", time.monotonic() + TIMEOUT_S, False
    try:
        for piece in reply.iter_bytes():
            content += piece
            if is_cut := len(content) > MOST_READ or time.monotonic() > until:
                break
    except httpx.HTTPError:  # the status is known, and counts
        is_cut = True
    text = hidden(content[:MOST_READ].decode(errors="replace"), url)
    text = text[: -6 * len(url)] if is_cut else text  # the end may hold the beginning of a secret, in any form
    return printable(" ".join(text.split()))[:MOST_ANSWER]


def _check(reply: httpx.Response, url: str) -> None:
    if reply.is_success:
        return
    if reply.is_redirect:
        raise DeliveryFailed(f"status {reply.status_code}: redirects are not followed", for_good=True)
    detail = _error_text(reply, url)
    why = f"status {reply.status_code}" + (f": {detail}" if detail else "")
    is_passing = reply.status_code >= 500 or reply.status_code in PASSING
    raise DeliveryFailed(why, for_good=not is_passing, wait_s=_wait_s(reply.headers.get("Retry-After", "")))


def _wait_s(text: str) -> float:
    return min(float(text), MOST_WAIT_S) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0
