"""Tables of people's logins."""

from django.db import models


class LoginAttempt(models.Model):
    """A password that was wrong, or is being checked. Rows older than the throttle's window are pruned."""

    at = models.DateTimeField(db_index=True)
    account = models.CharField(max_length=64)
    """The digest of the name that was typed: people type passwords there by mistake."""
    network = models.CharField(max_length=45)

    class Meta:
        indexes = [models.Index(fields=["account", "at"]), models.Index(fields=["network", "at"])]
