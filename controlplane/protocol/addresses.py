"""Parses the control plane's address; connections to this machine need not be encrypted."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


class AddressError(ValueError):
    """An address cannot be used; the message has the reason and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The control plane's address: ``authority`` is host, port and path prefix, without a trailing slash."""

    authority: str
    secure: bool
    loopback: bool

    @property
    def exposed(self) -> bool:
        """Whether a token could be read in transit."""
        return not (self.secure or self.loopback)

    @property
    def url(self) -> str:
        """Its base URL for HTTP, normalized."""
        return self.http("")

    def http(self, path: str) -> str:
        """The address of an HTTP resource."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{path}"

    def socket(self, path: str) -> str:
        """The address of a websocket."""
        return f"{'wss' if self.secure else 'ws'}://{self.authority}{path}"


def parse_address(url: str) -> ControlPlane:
    """The control plane at ``url`` (http, https, ws or wss).

    Raises:
        AddressError: if it is invalid; the message never repeats a password.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        shown = url.rpartition("@")[2]
        raise AddressError(f"{shown!r} is not an address: {error}; give one like http://127.0.0.1:8000") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise AddressError(
            "the control plane's address takes no password, query or fragment; give scheme, host and port"
        )
    if parts.scheme not in _SECURE or not host:
        raise AddressError(f"{url!r} is not an address of a control plane; give one like http://127.0.0.1:8000")
    authority = parts.netloc.lower() + parts.path.rstrip("/")
    return ControlPlane(authority=authority, secure=_SECURE[parts.scheme], loopback=is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether the name ``host`` denotes this machine; without a lookup."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
