"""Finds the owner of a service-account token by a TokenReview (``authentication.k8s.io/v1``) at the API server.

The token's own claims are read only to refuse it early, with a cure; only the API server's answer identifies its owner.
"""

import base64
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Final

import httpx

from controlplane.fleet.cluster import AUDIENCE, Account, Cluster
from controlplane.fleet.selectors import digest
from paceline.cli.places import MANAGE

CACHED_S: Final = 10.0
"""How long an answer is cached: long enough for a pod's retries, and too short for a deleted pod to matter."""

MOST_CACHED: Final = 1_000
AT_ONCE: Final = 8
"""Maximum number of concurrent reviews: any client can request one."""

TIMEOUT_S: Final = 5.0
PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCOUNT: Final = "system:serviceaccount:"
POD_NAME: Final = "authentication.kubernetes.io/pod-name"


class TokenRefused(Exception):
    """The token is not accepted; the text says why and what to do."""


class CannotReview(Exception):
    """The API server could not be reached; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The owner of a token, as the API server reports, and the labels of its account here."""

    account: Account
    service_account: str
    name: str

    @property
    def identity(self) -> str:
        """The identity of a machine that joined from it."""
        return f"{self.account.namespace}/{self.service_account}/{self.name}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a token's review, and until when it is cached."""

    found: Pod | TokenRefused
    until_s: float


def is_service_account_token(token: str) -> bool:
    """Whether it has the form of a service-account token; enrolment tokens have no dots."""
    return token.count(".") == 2


class Reviewer:
    """Reviews tokens for one cluster."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = cluster
        self._clock = clock
        self._answers: dict[str, Answer] = {}
        self._lock = Lock()
        self._places = BoundedSemaphore(AT_ONCE)

    def review(self, token: str) -> Pod:
        """The pod that owns ``token``.

        Raises:
            TokenRefused: if it is not accepted.
            CannotReview: if the API server could not be reached.
        """
        key, now_s = digest(token), self._clock()
        with self._lock:
            answer = self._answers.get(key)
        if answer is None or answer.until_s <= now_s:
            answer = Answer(self._review(token), now_s + CACHED_S)
            with self._lock:
                if len(self._answers) >= MOST_CACHED:
                    self._answers.clear()
                self._answers[key] = answer
        if isinstance(answer.found, TokenRefused):
            raise TokenRefused(str(answer.found))
        return answer.found

    def _review(self, token: str) -> Pod | TokenRefused:
        try:
            _check_claims(_claims(token), self.cluster)
            if not self._places.acquire(timeout=TIMEOUT_S):
                raise CannotReview(f"{AT_ONCE} tokens are being reviewed now; try again")
            try:
                status = _reviewed(token, self.cluster)
            finally:
                self._places.release()
            return _pod(status, self.cluster)
        except TokenRefused as refused:
            return refused


def _claims(token: str) -> dict[str, Any]:
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefused(
            f"this token is neither a readable service-account token nor an enrolment token; join with the file"
            f" that the kubelet writes, or with a token from: {MANAGE} enroll"
        )
    return claims


def _check_claims(claims: dict[str, Any], cluster: Cluster) -> None:
    audiences = claims.get("aud")
    audiences = audiences if isinstance(audiences, list) else [] if audiences is None else [audiences]
    if AUDIENCE not in audiences:
        found = ", ".join(map(repr, audiences)) or "none"
        raise TokenRefused(
            f"this service-account token is for the audience {found}, expected {AUDIENCE!r}: project a token for it"
            f" into the pod with serviceAccountToken: {{audience: {AUDIENCE}}}"
        )
    _account(str(claims.get("sub")), cluster)


def _account(username: str, cluster: Cluster) -> tuple[Account, str]:
    """The entry for a user, and its service account's name."""
    namespace, _, name = username.removeprefix(ACCOUNT).partition(":")
    account = cluster.account(namespace, name) if username.startswith(ACCOUNT) else None
    if account is None:
        listed = " ".join(map(str, cluster.accounts))
        raise TokenRefused(
            f"{username!r} may not join; PACELINE_KUBERNETES_ACCOUNTS lists {listed}: run the agent as one of these, or"
            f" add {namespace}/{name}"
        )
    return account, name


def _pod(status: dict[str, Any], cluster: Cluster) -> Pod:
    """The owner in the API server's answer."""
    if status.get("authenticated") is not True:
        why = str(status.get("error") or "no reason given")[:300]
        raise TokenRefused(
            f"the API server does not accept this service-account token ({why}): the kubelet renews the file, so join"
            f" with @FILE, from a pod that still exists"
        )
    if AUDIENCE not in (status.get("audiences") or []):
        raise TokenRefused(
            f"the API server did not confirm the audience {AUDIENCE!r} of this token: update the API server"
        )
    user = status.get("user") or {}
    account, name = _account(str(user.get("username")), cluster)
    pods = (user.get("extra") or {}).get(POD_NAME) or []
    if len(pods) != 1 or not isinstance(pods[0], str):
        raise TokenRefused(
            f"this token of {user['username']!r} is not bound to a pod: have the kubelet project a token into the"
            f" pod, and do not use kubectl create token"
        )
    return Pod(account=account, service_account=name, name=pods[0])


def _reviewed(token: str, cluster: Cluster) -> dict[str, Any]:
    """The status in the API server's answer."""
    own = _read(cluster.token, "PACELINE_KUBERNETES_TOKEN")
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [AUDIENCE]},
    }
    try:
        trust = ssl.create_default_context(cadata=_read(cluster.ca, "PACELINE_KUBERNETES_CA"))
        with httpx.Client(verify=trust, timeout=TIMEOUT_S, trust_env=False) as client:
            reply = client.post(cluster.api + PATH, json=body, headers={"Authorization": f"Bearer {own}"})
        document = reply.json()
    except ssl.SSLError as error:
        raise CannotReview(
            f"PACELINE_KUBERNETES_CA {cluster.ca} is not a certificate in PEM format ({error})"
        ) from None
    except httpx.HTTPError as error:
        raise CannotReview(
            f"the API server at {cluster.api} cannot be reached ({error}): check PACELINE_KUBERNETES_API and"
            f" PACELINE_KUBERNETES_CA, and that the network lets this process connect to it"
        ) from None
    except ValueError:
        document = {}
    if reply.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise CannotReview(
            f"the API server does not let this control plane review tokens (HTTP {reply.status_code}): bind its service"
            f" account to the cluster role system:auth-delegator (deploy/kubernetes/components/token-review)"
        )
    status = document.get("status") if isinstance(document, dict) else None
    if reply.status_code not in (httpx.codes.OK, httpx.codes.CREATED) or not isinstance(status, dict):
        raise CannotReview(f"the API server at {cluster.api} answered HTTP {reply.status_code} without a review")
    return status


def _read(path: Path, variable: str) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotReview(
            f"{variable}: {path} cannot be read ({error}): mount the service account's token and certificate there, as"
            f" deploy/kubernetes/components/token-review does"
        ) from None
