"""Creates enrolment tokens for the API and the command line, and enrols machines."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from controlplane.fleet.cluster import Cluster
from controlplane.fleet.services import TOKEN_LIFETIME, Enrolment, pod_redeem, token_create, token_redeem
from controlplane.fleet.token_review import Reviewer, TokenRefused, is_service_account_token
from controlplane.jobs.services import audit
from paceline.cli.places import MANAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A plain enrolment token and the command that uses it."""

    id: int
    token: str
    expires_at: datetime
    command: str
    """Reads the token from standard input, since other users of the machine can see command lines."""


@transaction.atomic
def invite(
    *,
    user: User | None,
    labels: Mapping[str, str],
    name: str = "",
    uses: int = 1,
    remove_after_s: float | None = None,
    lifetime_s: float = TOKEN_LIFETIME.total_seconds(),
) -> Invitation:
    """Create an enrolment token; ``user`` is None for the command line.

    With a ``name`` it is for that machine; otherwise for as many new machines as it has ``uses``.
    """
    token, row = token_create(
        labels=labels,
        name=name,
        uses=uses,
        remove_after=None if remove_after_s is None else timedelta(seconds=remove_after_s),
        created_by=user,
        lifetime=timedelta(seconds=lifetime_s),
    )
    audit(
        actor=user.get_username() if user else "command line",
        action="agent-invite",
        subject=f"enrolment token {row.pk}",
        detail={"labels": dict(labels)} | ({"name": name} if name else {}) | ({"uses": uses} if uses > 1 else {}),
    )
    command = (
        f"python -m workers join {settings.PACELINE_URL} - --slots 1{f' --name {shlex.quote(name)}' if name else ''}"
    )
    return Invitation(id=row.pk, token=token, expires_at=row.expires_at, command=command)


def enrol(*, token: str, name: str) -> Enrolment:
    """Let the machine ``name`` join with an enrolment token, or with the service-account token of its pod.

    Raises:
        EnrolmentRefused: if it may not; NameTaken: if another machine has that name.
        TokenRefused: if a service-account token is not accepted.
        CannotReview: if the token cannot be checked now.
    """
    if not is_service_account_token(token):
        with transaction.atomic():
            enrolment = token_redeem(token=token, name=name)
            audit(actor=f"agent {name}", action="agent-enrol", subject=f"agent {name}")
        return enrolment
    cluster: Cluster | None = settings.KUBERNETES
    if cluster is None:
        raise TokenRefused(
            "this is a service-account token, and pods are not allowed to join: set PACELINE_KUBERNETES_ACCOUNTS"
            f" (docs/clusters.md), or use a token from: {MANAGE} enroll"
        )
    pod = _reviewer().review(token)  # not within the transaction: it waits for another machine
    with transaction.atomic():
        enrolment = pod_redeem(pod=pod, name=name, remove_after=cluster.remove_after)
        subject, detail = f"agent {name}", {"pod": pod.identity}
        audit(actor=f"agent {name}", action="agent-enrol", subject=subject, detail=detail)
    return enrolment


@cache
def _reviewer() -> Reviewer:
    """The process's own instance, so that its cache is shared."""
    assert settings.KUBERNETES is not None
    return Reviewer(settings.KUBERNETES)
