"""The control plane's address, and its one rule: nothing leaves this machine unencrypted unless allowed."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


class AddressError(ValueError):
    """An address that cannot be used; the text says why and what to give instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Where the control plane answers: ``authority`` is host, port and path prefix, without a closing slash."""

    authority: str
    secure: bool
    loopback: bool

    @property
    def url(self) -> str:
        """Its base address for HTTP; two ways of writing one address give one ``url``."""
        return self.http("")

    def http(self, path: str) -> str:
        """The address of an HTTP resource."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{path}"

    def socket(self, path: str) -> str:
        """The address of a websocket."""
        return f"{'wss' if self.secure else 'ws'}://{self.authority}{path}"


def control_plane(url: str, *, insecure: bool = False) -> ControlPlane:
    """The control plane at ``url`` (http, https, ws or wss).

    Raises:
        AddressError: if it is no such address, or is unencrypted and off this machine without ``insecure``.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(f"{url!r} is not an address: {error}; give one like http://127.0.0.1:8000") from None
    if parts.scheme not in _SECURE or not host:
        raise AddressError(f"{url!r} is not an address of a control plane; give one like http://127.0.0.1:8000")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise AddressError(
            "the control plane's address takes no password, query or fragment; give scheme, host and port"
        )
    secure, loopback = _SECURE[parts.scheme], is_loopback(host)
    if not (secure or loopback or insecure):
        raise AddressError(
            f"{url} is not encrypted and not on this machine: give its https:// address, "
            "or --insecure if the network between is private"
        )
    return ControlPlane(authority=parts.netloc.lower() + parts.path.rstrip("/"), secure=secure, loopback=loopback)


EVERYWHERE = frozenset({"", "0.0.0.0", "::", "*"})


def check_bind(host: str, announced: str | None = None) -> None:
    """Refuse an address for parameter servers that others cannot reach.

    Raises:
        AddressError: with the cure.
    """
    if announced in EVERYWHERE:
        raise AddressError(f"--announce {announced!r} is no address that workers can connect to")
    if host in EVERYWHERE and announced is None:
        cure = "give this machine's own, or name it with --announce"
        raise AddressError(f"--host {host!r} is no address that workers can connect to: {cure}")


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine by its very name; nothing is looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
