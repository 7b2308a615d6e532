"""Sign-in at the OpenID Connect provider: the redirect, and validation of the response. Authlib does the protocol.

Imported at the first sign-in: Authlib and requests are a tenth of the import time of web.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client.errors import MismatchingStateError
from authlib.integrations.django_client import DjangoOAuth2App, OAuth
from authlib.oidc.discovery import get_well_known_url
from joserfc.errors import ExpiredTokenError, JoseError

from controlplane.people.claims import Claims, SignInRefused, provider
from controlplane.people.configured import Provider

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""Accepted signature algorithms: asymmetric ones only. A provider's own list cannot add others."""

TIMEOUT_S: Final = 10
LEEWAY_S: Final = 60
MOST_GROUPS: Final = 2_000
NAME_LENGTH: Final = 150

Kept = dict[str, Any]
"""Values in the session while the user is at the provider: state, nonce, code verifier and return address."""

logger = logging.getLogger(__name__)


def begin(return_to: str) -> tuple[str, Kept]:
    """The URL to send the browser to, and the values to keep in its session.

    Raises:
        SignInRefused: if the provider cannot be reached.
    """
    request = SimpleNamespace(session={})
    try:
        url = _client().authorize_redirect(request, return_to)["Location"]
    except (requests.RequestException, ValueError, RuntimeError) as error:
        raise _unreachable(error) from None
    return url, request.session


def finish(query: Mapping[str, str], kept: Kept) -> Claims:
    """The provider's claims about the user who returns with this query.

    Raises:
        SignInRefused: if the response is not valid.
    """
    if "error" in query:
        logger.warning("the OpenID Connect provider refused a sign-in: %r", query["error"][:100])
        raise SignInRefused("The identity provider did not sign you in.", cure="Try again, or ask who manages it.")
    request = SimpleNamespace(session=kept, method="GET", GET=query)
    configured = provider()
    options = {
        "iss": {"essential": True, "values": [configured.issuer, f"{configured.issuer}/"]},
        "aud": {"essential": True, "value": configured.client_id},
    }
    try:
        client = _client()
        token = client.authorize_access_token(request, claims_options=options, leeway=LEEWAY_S)
        claims: dict[str, Any] = dict(token.get("userinfo") or {})
        if not claims:
            raise SignInRefused("The identity provider's answer has no ID token.", status=502)
        return _read(_complete(client, token, claims))
    except MismatchingStateError:
        raise SignInRefused(
            "This sign-in was not begun in this browser, or more than ten minutes ago.", status=400, cure="Begin again."
        ) from None
    except ExpiredTokenError:
        raise SignInRefused(
            "The identity provider's answer has expired.",
            cure="Begin again; if it happens again, the clocks of the provider and of this server differ.",
        ) from None
    except (AuthlibBaseError, JoseError) as error:
        logger.warning("a sign-in by OpenID Connect proved nothing: %s", type(error).__name__)
        raise SignInRefused("The identity provider's answer is not valid.", cure="Begin again.") from None
    except (requests.RequestException, ValueError, RuntimeError, KeyError) as error:
        raise _unreachable(error) from None


def _client() -> DjangoOAuth2App:
    client = _client_of(provider())
    found = client.load_server_metadata()
    issuer = str(found.get("issuer", ""))
    if issuer.rstrip("/") != provider().issuer:
        _client_of.cache_clear()  # fetch its metadata again next time: the provider may have been fixed
        raise ValueError(f"it calls itself {issuer[:200]!r}, PACELINE_OIDC_ISSUER is {provider().issuer!r}")
    offered = found.get("id_token_signing_alg_values_supported") or ["RS256"]
    found["id_token_signing_alg_values_supported"] = [each for each in offered if each in ALGORITHMS]
    return client


@lru_cache(maxsize=4)
def _client_of(configured: Provider) -> DjangoOAuth2App:
    return OAuth().register(
        "provider",
        client_id=configured.client_id,
        client_secret=configured.client_secret,
        server_metadata_url=get_well_known_url(configured.issuer, external=True),
        client_kwargs={
            "scope": configured.scopes,
            "code_challenge_method": "S256",
            "default_timeout": TIMEOUT_S,
        },
    )


def _complete(client: DjangoOAuth2App, token: dict[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
    """The claims, completed from the provider's userinfo endpoint."""
    configured = provider()
    missing = [name for name in (configured.name_claim, configured.groups_claim) if _at(claims, name) is None]
    if not missing or "userinfo_endpoint" not in client.server_metadata:
        return claims
    more = dict(client.userinfo(token=token))
    if more.get("sub") != claims.get("sub"):
        raise SignInRefused("The identity provider's answers are about different people.", status=502)
    return {**more, **claims}


def _read(claims: dict[str, Any]) -> Claims:
    configured = provider()
    subject, name = claims.get("sub"), _at(claims, configured.name_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= 255:
        raise SignInRefused("The identity provider's answer does not name a user.", status=502)
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH:
        raise SignInRefused(
            f"The identity provider sent no user name: the claim {configured.name_claim} is missing or not a name.",
            cure="An admin of this installation can name another claim, or have the provider send this one.",
        )
    groups = _at(claims, configured.groups_claim)
    listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    email = claims.get("email")
    return Claims(
        subject=subject,
        name=name,
        groups=tuple(each for each in listed[:MOST_GROUPS] if isinstance(each, str)),
        email=email[:254] if isinstance(email, str) else "",
    )


def _at(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by the path to it."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _unreachable(error: Exception) -> SignInRefused:
    logger.error("the OpenID Connect provider does not answer as one: %s", error)
    return SignInRefused(
        "The identity provider does not answer.", status=502, cure="Try again; the log of the web process says more."
    )
