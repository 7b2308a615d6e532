"""The client of the control plane's REST API."""

import ssl

import httpx

from controlplane.protocol.addresses import ControlPlane


def http_client(plane: ControlPlane, timeout_s: float) -> httpx.Client:
    """A client that reaches ``plane`` as websockets do: other machines by the environment's proxy, and with the
    certificate authorities of this machine, or those in ``SSL_CERT_FILE``.
    """
    return httpx.Client(timeout=timeout_s, trust_env=not plane.loopback, verify=ssl.create_default_context())
