"""Tables of users: logins, sessions, API tokens, teams, quotas and the audit chain."""

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils.module_loading import import_string


class LoginAttempt(models.Model):
    """A password that was wrong or is being checked. Rows older than the throttle's window are pruned."""

    at = models.DateTimeField(db_index=True)
    account = models.CharField(max_length=64)
    """The digest of the entered name: users sometimes enter their password there."""
    network = models.CharField(max_length=45)

    class Meta:
        indexes = [models.Index(fields=["account", "at"]), models.Index(fields=["network", "at"])]


class Session(AbstractBaseSession):
    """A browser's session. Its key is secret; ``number`` identifies it in lists."""

    number = models.CharField(max_length=16, db_index=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="sessions")
    signed_in_at = models.DateTimeField(null=True)
    address = models.CharField(max_length=45, default="", blank=True)
    browser = models.CharField(max_length=200, default="", blank=True)

    @classmethod
    def get_session_store_class(cls) -> type[SessionBase]:
        """The session engine of the settings, which reads and writes these rows."""
        store: type[SessionBase] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
        return store


class TokenGrant(models.Model):
    """The limits of an API token. Without such a row it is from an earlier release, with all rights of its user."""

    token = models.OneToOneField("knox.AuthToken", primary_key=True, on_delete=models.CASCADE, related_name="grant")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=10, default="", blank=True)
    """The token's highest role; empty: its user's role."""
    scopes = models.CharField(max_length=200, default="", blank=True)
    """The token's scopes, separated by spaces; empty: everything that its role allows."""
    parent = models.ForeignKey(
        "knox.AuthToken", null=True, on_delete=models.CASCADE, related_name="child_grants", default=None
    )
    """The token with which it was created: this one expires no later, and is revoked with it."""
    used_at = models.DateTimeField(null=True)
    """The last use, to within a few minutes."""
    used_from = models.CharField(max_length=45, default="", blank=True)


class Identity(models.Model):
    """A user's identity at the OpenID Connect provider. Names there can change and be reused; subjects cannot."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identity")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    signed_in_at = models.DateTimeField(null=True)
    """The last sign-in; it set the role."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_user_per_subject")]


class EmergencyAccount(models.Model):
    """A user who can sign in by password even if local accounts are off; created only by ``manage.py``."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="emergency")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)


class AuditSeal(models.Model):
    """The seal of one audit entry. It has no foreign key, so that it remains and shows if the entry was removed."""

    sequence = models.BigIntegerField(primary_key=True)
    """The number in the chain, without gaps."""
    entry = models.BigIntegerField(unique=True)
    seal = models.CharField(max_length=64)
    """MAC of the entry and the previous seal."""
    key = models.CharField(max_length=8)
    """Identifies the secret from which the key is derived."""


class AuditCopy(models.Model):
    """The position up to which the audit trail was copied to a destination."""

    name = models.CharField(max_length=20, primary_key=True)
    sequence = models.BigIntegerField(default=0)


class Team(models.Model):
    """A team, which owns jobs and machines. Only its members see them."""

    name = models.CharField(max_length=60, unique=True)
    weight = models.FloatField(default=1.0)
    """The team's share of the slots, relative to other teams' weights."""
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A user's role in a team."""

    class Role(models.TextChoices):
        """As the roles of the installation, but only for what the team owns."""

        MEMBER = "member"
        """Views it."""
        OPERATOR = "operator"
        """Submits and stops its jobs, drains its machines."""
        ADMIN = "admin"
        """Also manages members, and labels of its machines."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role.choices, default=Role.MEMBER)
    joined_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team")]


class TeamUsage(models.Model):
    """Slot-seconds used by a team's jobs, decayed; without a team: by jobs without a team."""

    team = models.OneToOneField(Team, null=True, on_delete=models.CASCADE, related_name="usage")
    slot_seconds = models.FloatField(default=0.0)
    at = models.DateTimeField()


class Quota(models.Model):
    """Limits of a user or a team; without either, those of each user without a row. Null: no limit."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="quota")
    team = models.OneToOneField(Team, null=True, on_delete=models.CASCADE, related_name="quota")
    slots = models.PositiveIntegerField(null=True)
    """Worker and server slots held by running jobs; jobs beyond the limit wait."""
    jobs = models.PositiveIntegerField(null=True)
    """Jobs that are not over."""
    workers = models.PositiveIntegerField(null=True)
    """Workers of jobs that are not over."""
    simulations = models.PositiveIntegerField(null=True)
    """Simulations that are queued or run."""
    stored_bytes = models.PositiveBigIntegerField(null=True)
    """Bytes of saved models of its jobs."""
