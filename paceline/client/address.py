"""The control plane's address and token: as given, otherwise from the environment."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from controlplane.protocol.addresses import is_loopback
from paceline.errors import PacelineError

DEFAULT_URL = "http://127.0.0.1:8000"


class Address(msgspec.Struct, frozen=True):
    """Where a control plane is, and the token for it."""

    url: str
    token: str

    @property
    def base(self) -> str:
        """Base URL of all requests."""
        return f"{self.url}/api/v1/"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of all requests."""
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}

    @property
    def may_use_proxy(self) -> bool:
        """Whether a proxy of the environment (``HTTPS_PROXY``, ``NO_PROXY``) applies, as for ranks and agents: to other
        machines.
        """
        return not is_loopback(urlsplit(self.url).hostname or "")

    def page(self, job: int) -> str:
        """The URL of a job's page."""
        return f"{self.url}/jobs/{job}/"


def address(url: str | None, token: str | None, variables: Mapping[str, str] = os.environ) -> Address:
    """Return the given address; missing parts come from ``PACELINE_URL`` and ``PACELINE_API_TOKEN``.

    Raises:
        PacelineError: if there is no token, or if token or address is malformed.
    """
    where = (url or variables.get("PACELINE_URL") or DEFAULT_URL).strip().rstrip("/")
    parts = urlsplit(where)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PacelineError(f"url: found {where!r}, expected an address such as https://paceline.example.org")
    secret = (token if token is not None else variables.get("PACELINE_API_TOKEN", "")).strip()
    if not secret:
        raise PacelineError(
            f"no API token for {where}: give one, or set PACELINE_API_TOKEN; "
            "where the control plane runs, `paceline access NAME --token` (or manage.py access NAME --token) prints one"
        )
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise PacelineError("the API token holds other characters than letters, digits and signs: copy it again")
    return Address(where, secret)
