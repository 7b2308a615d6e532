"""Sends one signed body to a webhook. Runs in parallel threads, without the database."""

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
"""Time limit for connecting, sending, and each part of the response."""

MOST_ANSWER: Final = 300
"""Maximum characters of an error's body that are stored and displayed."""

MOST_READ: Final = 16_384
"""Maximum bytes of it that are read: possible secrets are removed before it is cut."""

LEAST_HIDDEN: Final = 6
"""Shorter parts of a path or query are not treated as secrets."""

MOST_WAIT_S: Final = 3_600.0
PASSING: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which a retry may succeed."""


class DeliveryFailed(Exception):
    """The message was not delivered, with the reason. It is retried unless ``for_good``."""

    def __init__(self, why: str, *, for_good: bool = False, wait_s: float = 0.0) -> None:
        self.for_good, self.wait_s = for_good, wait_s
        super().__init__(why)


def send(*, url: str, secret: str, key: str, body: bytes) -> None:
    """POST the body once.

    Raises:
        DeliveryFailed: unless the response status is 2xx.
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
    """Resolve and check the host's address. The connection uses this address: the name may resolve differently later.

    Raises:
        DeliveryFailed: if there is no address, or it is not allowed.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: an empty or too long label
        why = getattr(error, "strerror", None) or error
        raise DeliveryFailed(f"the host {host} cannot be resolved ({why})") from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        if why := refused(address):
            raise DeliveryFailed(f"the host {host} resolves to {address}; expected {why}", for_good=True)
    return str(addresses[0])


def hidden(text: str, url: str) -> str:
    """Remove the URL's path, query and their parts from a text: they are often secrets, and servers echo them."""
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
    except httpx.HTTPError:  # the status is already known
        is_cut = True
    text = hidden(content[:MOST_READ].decode(errors="replace"), url)
    text = text[: -6 * len(url)] if is_cut else text  # the end may contain a cut secret
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
