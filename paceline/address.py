"""The websocket address of the control plane. A token is sent unencrypted to another machine only if this is
configured.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from controlplane.protocol.addresses import AddressError, parse_address
from paceline.errors import CannotAttach

INSECURE = "PACELINE_INSECURE"


class Address(NamedTuple):
    """URL of a rank's websocket."""

    url: str
    is_loopback: bool


def socket_address(base: str, path: str, environment: Mapping[str, str] = os.environ) -> Address:
    """Return the websocket URL for ``path`` of the control plane at ``base``.

    Raises:
        CannotAttach: if ``base`` is not a URL, or if it is unencrypted and on another machine.
    """
    try:
        plane = parse_address(base)
    except AddressError as error:
        raise CannotAttach(f"PACELINE_URL: {error}") from None
    if plane.exposed and environment.get(INSECURE) != "1":
        raise CannotAttach(
            f"PACELINE_URL {base} is not encrypted and not on this machine, so the job's token could be read on its"
            f" way: give its https:// address, or set {INSECURE}=1 if the network is private"
        )
    return Address(plane.socket(path), plane.loopback)
