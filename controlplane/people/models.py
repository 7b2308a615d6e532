"""Tables of people's logins, sessions and API tokens."""

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils.module_loading import import_string


class LoginAttempt(models.Model):
    """A password that was wrong, or is being checked. Rows older than the throttle's window are pruned."""

    at = models.DateTimeField(db_index=True)
    account = models.CharField(max_length=64)
    """The digest of the name that was typed: people type passwords there by mistake."""
    network = models.CharField(max_length=45)

    class Meta:
        indexes = [models.Index(fields=["account", "at"]), models.Index(fields=["network", "at"])]


class Session(AbstractBaseSession):
    """A browser's login. Its key is a secret; ``number`` names it in lists."""

    number = models.CharField(max_length=16, db_index=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="sessions")
    signed_in_at = models.DateTimeField(null=True)
    address = models.CharField(max_length=45, default="", blank=True)
    browser = models.CharField(max_length=200, default="", blank=True)

    @classmethod
    def get_session_store_class(cls) -> type[SessionBase]:
        """What reads and writes these rows: the session engine of the settings."""
        store: type[SessionBase] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
        return store


class TokenGrant(models.Model):
    """The purpose of an API token. A token without such a row is an older one, with all rights of its user."""

    token = models.OneToOneField("knox.AuthToken", primary_key=True, on_delete=models.CASCADE, related_name="grant")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=10, default="", blank=True)
    """The highest role that it carries; empty: that of its user."""
    scopes = models.CharField(max_length=200, default="", blank=True)
    """Its scopes, separated by spaces; empty: everything that its role allows."""
    parent = models.ForeignKey(
        "knox.AuthToken", null=True, on_delete=models.CASCADE, related_name="child_grants", default=None
    )
    """The token with which it was made: it expires no later, and is revoked with it."""
    used_at = models.DateTimeField(null=True)
    """To within a few minutes."""
    used_from = models.CharField(max_length=45, default="", blank=True)


class Identity(models.Model):
    """A user's identity at the OpenID Connect provider. Names change there and may be given again; subjects do not."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identity")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    signed_in_at = models.DateTimeField(null=True)
    """The last time: the role is of then."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_user_per_subject")]


class EmergencyAccount(models.Model):
    """A user whose password is accepted where local accounts are switched off; made by ``manage.py`` alone."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="emergency")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)


class AuditSeal(models.Model):
    """The seal of one entry of the audit trail. No foreign key: a seal outlasts its entry, and so shows its removal."""

    sequence = models.BigIntegerField(primary_key=True)
    """Rises by one."""
    entry = models.BigIntegerField(unique=True)
    seal = models.CharField(max_length=64)
    """Over the entry and the seal before it."""
    key = models.CharField(max_length=8)
    """Names the secret of its key."""


class AuditCopy(models.Model):
    """How far the audit trail was copied to somewhere else."""

    name = models.CharField(max_length=20, primary_key=True)
    sequence = models.BigIntegerField(default=0)


class Team(models.Model):
    """Owns jobs and machines. Who is no member does not see them."""

    name = models.CharField(max_length=60, unique=True)
    weight = models.FloatField(default=1.0)
    """Its part of the slots, relative to other teams."""
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A user's role in a team."""

    class Role(models.TextChoices):
        """Like the roles of the installation, for what the team owns."""

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
    """Slot-seconds that a team's jobs used, decayed until then; without a team: jobs that no team owns."""

    team = models.OneToOneField(Team, null=True, on_delete=models.CASCADE, related_name="usage")
    slot_seconds = models.FloatField(default=0.0)
    at = models.DateTimeField()


class Quota(models.Model):
    """The most that a user or a team may have at a time; without either: each user without a row. Null: no limit."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="quota")
    team = models.OneToOneField(Team, null=True, on_delete=models.CASCADE, related_name="quota")
    slots = models.PositiveIntegerField(null=True)
    """Worker and server slots that its running jobs hold: jobs beyond it wait."""
    jobs = models.PositiveIntegerField(null=True)
    """Jobs that are not over."""
    workers = models.PositiveIntegerField(null=True)
    """Workers of jobs that are not over."""
    simulations = models.PositiveIntegerField(null=True)
    """Simulations that are queued or run."""
    stored_bytes = models.PositiveBigIntegerField(null=True)
    """Bytes of saved models of its jobs."""
