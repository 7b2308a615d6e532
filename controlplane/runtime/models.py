"""Tables of the live driver: the known Redis, incarnations granted by recoveries, forecasts."""

from django.db import models


class KnownRedis(models.Model):
    """A Redis that held the logs of this database's jobs; the last one made is the present one."""

    identity = models.CharField(max_length=40, unique=True)
    met_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.identity


class GivenIncarnation(models.Model):
    """The last incarnation that was assigned to a job, stored before it is published.

    Redis may lose an incarnation
    before its beginning is copied here. If its number were reused, workers would take the new orders for old ones.
    """

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="given_incarnation", primary_key=True)
    number = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"incarnation {self.number} of job {self.job_id}"


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
