"""Where messages may go: documents of targets, and which addresses are refused. Pure."""

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
    """A target as an admin gives it. Empty fields of a change are not changed."""

    name: Name
    kind: Literal["webhook", "email"]
    format: Literal["paceline", "slack"] = "paceline"
    url: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    secret: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """With which bodies are signed; empty: one is made."""
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
        """What may be shown: of a URL the scheme and the host, since its path is often a secret."""
        if not self.url:
            return ", ".join(self.addresses)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


def parse_target(document: object, before: Address | None = None) -> tuple[TargetDocument, Address]:
    """A target, new or changed.

    Raises:
        SpecError: naming the field, what was found and what is allowed; never repeating a secret.
    """
    target = converted(document, TargetDocument)
    if target.kind == "email":
        addresses = target.addresses or (before.addresses if before else [])
        wrong = next((each for each in addresses if MAIL.fullmatch(each) is None), None)
        if wrong is not None or not addresses:
            raise SpecError("addresses", wrong, "addresses such as oncall@example.org")
        return target, Address(addresses=list(addresses))
    url = target.url or (before.url if before else "")
    check_url(url)
    if target.secret and len(target.secret) < LEAST_SECRET:
        raise SpecError("secret", f"{len(target.secret)} characters", f"at least {LEAST_SECRET} characters, or none")
    return target, Address(url=url, secret=target.secret or (before.secret if before else ""))


def check_url(url: str) -> None:
    """Refuse what is no address of an HTTP server.

    Raises:
        SpecError: without the URL's path, which may be a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # a label that is empty or too long is no name
    except ValueError:
        raise SpecError("url", "a malformed URL", "an address such as https://hooks.example.org/alerts") from None
    if parts.scheme not in {"http", "https"} or not host or not url.isascii() or not url.isprintable() or " " in url:
        found = f"the scheme {parts.scheme[:20]!r}" if parts.scheme else "no http:// or https://"
        raise SpecError("url", found, "an address such as https://hooks.example.org/alerts")
    if parts.username is not None or parts.password is not None:
        raise SpecError("url", "a URL with a login", "one without: messages are signed with the secret instead")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if why := refused(address):
        raise SpecError("url", f"the host {host}", why)


def refused(address: IpAddress) -> str:
    """Why nothing is sent to this address; empty: it may be.

    Receivers are often on the same machine or network, so loopback and private addresses are allowed. Link-local
    ones are not: there, clouds hand out their machines' credentials.
    """
    for each in (address, *_embedded(address)):
        if each.is_link_local:
            return "an address that is not link-local: such addresses serve credentials of cloud machines"
        if each.is_multicast or each.is_unspecified or each in CLOUD:
            return "the address of one machine"
    return ""


CLOUD: Final = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192")))
"""Where clouds (AWS, Google, Alibaba, Oracle) serve credentials outside the link-local range."""

ENDS_IN_IPV4: Final = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)
"""IPv4-compatible, mapped and translated addresses, and NAT64."""

ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The first half of an interface's part that ends in an IPv4 address, with any network."""


def _embedded(address: IpAddress) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses at which a gateway or tunnel may deliver what is sent to this one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    number = int(address)
    ends = any(address in network for network in ENDS_IN_IPV4) or number >> 32 & 0xFFFF_FFFF in ISATAP
    found = [ipaddress.IPv4Address(number & 0xFFFF_FFFF)] if ends else []
    return [*found, *(address.teredo or ()), *([address.sixtofour] if address.sixtofour else [])]
