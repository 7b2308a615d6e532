"""A real OpenID Connect provider as a process, over HTTP: ``oidc-provider-mock``, built on Authlib's server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from controlplane.config.people import read_people
from controlplane.people.configured import Provider
from controlplane.runtime.embedded.ground import free_port
from tests.support.waiting import eventually

CLIENT = {"PACELINE_OIDC_CLIENT_ID": "paceline", "PACELINE_OIDC_CLIENT_SECRET": "a-secret"}
ROLES = "ml-admins=admin,ml=operator,all=viewer"


@dataclass(frozen=True)
class OidcProvider:
    """Where it is."""

    url: str

    def configured(self, **changes: str) -> Provider:
        """As the settings have it."""
        variables = {"PACELINE_OIDC_ISSUER": self.url, "PACELINE_OIDC_ROLES": ROLES, **CLIENT, **changes}
        found = read_people(variables).oidc
        assert found is not None
        return found

    def knows(self, subject: str, **claims: Any) -> None:
        """Have a person there, or change what is said of them."""
        httpx.put(f"{self.url}/users/{subject}", json=claims, trust_env=False).raise_for_status()

    def approve(self, address: str, subject: str) -> str:
        """Sign in there as that person; where the browser is sent then."""
        return self._answer(address, {"sub": subject})

    def deny(self, address: str) -> str:
        """Refuse there."""
        return self._answer(address, {"action": "deny"})

    def _answer(self, address: str, form: dict[str, str]) -> str:
        reply = httpx.post(address, data=form, trust_env=False)
        assert reply.status_code == 302, reply.text
        back = urlsplit(reply.headers["Location"])
        return f"{back.path}?{back.query}"


@contextmanager
def running_provider(folder: Path, *options: str) -> Iterator[OidcProvider]:
    """One, for the time of the block."""
    port = free_port()
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), *options]
    with (folder / "provider.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "PYTHONWARNINGS": "ignore"}, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(url), what="the start of the OpenID Connect provider")
        yield OidcProvider(url)
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/.well-known/openid-configuration", trust_env=False).is_success
    except httpx.HTTPError:
        return False
