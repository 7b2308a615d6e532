"""Tables of the live driver: the known Redis, incarnations granted by recoveries, forecasts."""

from django.db import models


class KnownRedis(models.Model):
    """A Redis that held the logs of this database's jobs; the latest row is the current one."""

    identity = models.CharField(max_length=40, unique=True)
    met_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.identity


class GivenIncarnation(models.Model):
    """The last incarnation that was assigned to a job, stored before it is published.

    Redis may lose an incarnation
    before its first event is copied here. If its number were reused, workers would mistake the new orders for old ones.
    """

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="given_incarnation", primary_key=True)
    number = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"incarnation {self.number} of job {self.job_id}"


class Forecast(models.Model):
    """The latest simulation of alternatives over a job's last minutes."""

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="forecast", primary_key=True)
    answer = models.JSONField(null=True)
    """The output of ``manage.py whatif --json``; null if the simulation failed."""
    reason = models.TextField(default="", blank=True)
    """Why the simulation failed."""
    took_s = models.FloatField(default=0.0)
    made_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"forecast of job {self.job_id}"
