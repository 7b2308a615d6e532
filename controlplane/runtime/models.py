"""Tables of the live driver's own: which Redis it works with, and what else its jobs could do."""

from django.db import models


class KnownRedis(models.Model):
    """A Redis that held the logs of this database's jobs; the last one made is the present one."""

    identity = models.CharField(max_length=40, unique=True)
    met_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.identity


class Forecast(models.Model):
    """What a job would have done otherwise over its last minutes, as it was played last."""

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="forecast", primary_key=True)
    answer = models.JSONField(null=True)
    """As ``manage.py whatif --json`` prints it; null where nothing could be played,"""
    reason = models.TextField(default="", blank=True)
    """for this reason."""
    took_s = models.FloatField(default=0.0)
    made_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"forecast of job {self.job_id}"
