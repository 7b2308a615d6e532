"""The one rule about addresses: nothing leaves this machine unencrypted unless allowed."""

from controlplane.protocol.addresses import AddressError, ControlPlane, parse_address


def control_plane(url: str, *, insecure: bool = False) -> ControlPlane:
    """The control plane at ``url`` (http, https, ws or wss).

    Raises:
        AddressError: if it is no such address, or is unencrypted and off this machine without ``insecure``.
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
    """Refuse an address for parameter servers that others cannot reach.

    Raises:
        AddressError: with the cure.
    """
    if announced in EVERYWHERE:
        raise AddressError(f"--announce {announced!r} is no address that workers can connect to")
    if host in EVERYWHERE and announced is None:
        cure = "give this machine's own, or name it with --announce"
        raise AddressError(f"--host {host!r} is no address that workers can connect to: {cure}")
