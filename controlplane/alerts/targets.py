"""Defines target documents, and rejects addresses that must not be contacted. Pure."""

import ipaddress
import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from controlplane.alerts.rules import converted
from controlplane.protocol.base import Name
from controlplane.protocol.parts import Part, SpecError

MOST_ADDRESSES: Final = 20
LEAST_SECRET: Final = 16
MAIL: Final = re.compile(r"[^@\s,;<>\"]{1,64}@[A-Za-z0-9.-]{1,255}")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class TargetDocument(Part, frozen=True, kw_only=True):
    """A target document. Empty fields keep their values in a change."""

    name: Name
    kind: Literal["webhook", "email"]
    format: Literal["paceline", "slack"] = "paceline"
    url: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    secret: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """The signing secret; empty: one is generated."""
    addresses: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=320)]], msgspec.Meta(max_length=MOST_ADDRESSES)
    ] = []


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The encrypted fields."""

    url: str = ""
    secret: str = ""
    addresses: list[str] = []

    @property
    def shown(self) -> str:
        """The displayable part: only scheme and host of a URL, since its path is often a secret."""
        if not self.url:
            return ", ".join(self.addresses)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


def parse_target(document: object, before: Address | None = None) -> tuple[TargetDocument, Address]:
    """Parse a new or changed target.

    Raises:
        SpecError: with the field, the found value and the allowed ones, but never a secret.
    """
    target = converted(document, TargetDocument)
    if target.kind == "email":
        addresses = target.addresses or (before.addresses if before else [])
        wrong = next((each for each in addresses if MAIL.fullmatch(each) is None), None)
        if wrong is not None or not addresses:
            raise SpecError("addresses", wrong, "email addresses such as oncall@example.org")
        return target, Address(addresses=list(addresses))
    url = target.url or (before.url if before else "")
    check_url(url)
    if target.secret and len(target.secret) < LEAST_SECRET:
        raise SpecError("secret", f"{len(target.secret)} characters", f"at least {LEAST_SECRET} characters, or none")
    return target, Address(url=url, secret=target.secret or (before.secret if before else ""))


def check_url(url: str) -> None:
    """Reject a URL that is not an HTTP address, or must not be contacted.

    Raises:
        SpecError: without the URL's path, which may be a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # raises for empty or too long labels
    except ValueError:
        raise SpecError("url", "a malformed URL", "a URL such as https://hooks.example.org/alerts") from None
    if parts.scheme not in {"http", "https"} or not host or not url.isascii() or not url.isprintable() or " " in url:
        found = f"the scheme {parts.scheme[:20]!r}" if parts.scheme else "no http:// or https://"
        raise SpecError("url", found, "a URL such as https://hooks.example.org/alerts")
    if parts.username is not None or parts.password is not None:
        raise SpecError("url", "a URL with credentials", "one without: messages are signed with the secret instead")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if why := refused(address):
        raise SpecError("url", f"the host {host}", why)


def refused(address: IpAddress) -> str:
    """Why nothing is sent to this address; empty if it is allowed.

    Receivers are often on the same machine or network, so loopback and private addresses are allowed. Link-local
    addresses are not: cloud providers serve instance credentials there.
    """
    for each in (address, *_embedded(address)):
        if each.is_link_local:
            return "an address that is not link-local: cloud providers serve instance credentials there"
        if each.is_multicast or each.is_unspecified or each in CLOUD:
            return "a unicast address"
    return ""


CLOUD: Final = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192")))
"""Addresses outside the link-local range at which clouds (AWS, Google, Alibaba, Oracle) serve credentials."""

ENDS_IN_IPV4: Final = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)
"""IPv4-compatible, mapped and translated addresses, and NAT64."""

ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Upper halves of ISATAP interface identifiers, whose lower half is an IPv4 address."""


def _embedded(address: IpAddress) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses to which a gateway or tunnel may forward packets for this address."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    number = int(address)
    ends = any(address in network for network in ENDS_IN_IPV4) or number >> 32 & 0xFFFF_FFFF in ISATAP
    found = [ipaddress.IPv4Address(number & 0xFFFF_FFFF)] if ends else []
    return [*found, *(address.teredo or ()), *([address.sixtofour] if address.sixtofour else [])]
