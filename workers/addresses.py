"""Checks addresses: parameters and credentials leave this machine unencrypted only if that is allowed."""

from controlplane.protocol.addresses import AddressError, ControlPlane, parse_address


def control_plane(url: str, *, insecure: bool = False) -> ControlPlane:
    """Parse the control plane's address (http, https, ws or wss).

    Raises:
        AddressError: if it is invalid, or is unencrypted and on another machine without ``insecure``.
    """
    plane = parse_address(url)
    if plane.exposed and not insecure:
        raise AddressError(
            f"{url} is not encrypted and not on this machine: give its https:// address, "
            "or --insecure if the network between is private"
        )
    return plane


EVERYWHERE = frozenset({"", "0.0.0.0", "::", "*"})


def check_bind(host: str, announced: str | None = None) -> None:
    """Check that other machines can reach the address of the parameter servers.

    Raises:
        AddressError: with the cure.
    """
    if announced in EVERYWHERE:
        raise AddressError(f"--announce {announced!r} is not an address that workers can connect to")
    if host in EVERYWHERE and announced is None:
        cure = "give this machine's own, or name it with --announce"
        raise AddressError(f"--host {host!r} is not an address that workers can connect to: {cure}")
