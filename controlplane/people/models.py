"""Tables of people's logins, sessions and API tokens."""

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models


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
        """What reads and writes these rows."""
        from controlplane.people.sessions import SessionStore

        return SessionStore


class TokenGrant(models.Model):
    """What an API token is for. A token without such a row is an older one, with all rights of its user."""

    token = models.OneToOneField("knox.AuthToken", primary_key=True, on_delete=models.CASCADE, related_name="grant")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=10, default="", blank=True)
    """The highest role that it carries; empty: that of its user."""
    parent = models.ForeignKey(
        "knox.AuthToken", null=True, on_delete=models.CASCADE, related_name="child_grants", default=None
    )
    """The token with which it was made: it expires no later, and is revoked with it."""
    used_at = models.DateTimeField(null=True)
    """To within a few minutes."""
    used_from = models.CharField(max_length=45, default="", blank=True)
