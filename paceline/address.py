"""The control plane's address. A rank's token is sent unencrypted to another machine only if that is configured."""

import ipaddress
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from paceline.errors import CannotAttach

SCHEMES = {"http": "ws", "ws": "ws", "https": "wss", "wss": "wss"}
INSECURE = "PACELINE_INSECURE"


class Address(NamedTuple):
    """URL of a rank's websocket."""

    url: str
    is_loopback: bool


def socket_address(base: str, path: str, environment: Mapping[str, str] = os.environ) -> Address:
    """The websocket at ``path`` of the control plane at ``base``.

    Raises:
        CannotAttach: if that is no address, or if it is unencrypted and on another machine.
    """
    try:
        parts = urlsplit(base)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise CannotAttach(f"PACELINE_URL is {base!r}, which is no address: {error}") from None
    if parts.scheme not in SCHEMES or not host:
        raise CannotAttach(f"PACELINE_URL is {base!r}, which is no address; give one like https://paceline.example")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise CannotAttach("PACELINE_URL takes no password, query or fragment; give scheme, host and port")
    is_loopback = _is_loopback(host)
    if SCHEMES[parts.scheme] == "ws" and not is_loopback and environment.get(INSECURE) != "1":
        raise CannotAttach(
            f"PACELINE_URL {base} is not encrypted and not on this machine, so the job's token could be read on its"
            f" way: give its https:// address, or set {INSECURE}=1 if nobody else can reach the network between"
        )
    return Address(f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}{path}", is_loopback)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
