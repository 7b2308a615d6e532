"""Tables of history. Written by ingest alone, in the transaction that moves its cursor."""

from django.db import models


class Cursor(models.Model):
    """How far ingest has copied one stream of one job."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="cursors")
    stream = models.CharField(max_length=10)
    """``events`` or ``commands``."""
    incarnation = models.PositiveIntegerField(default=0)
    position = models.CharField(max_length=40, default="0-0")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "stream"], name="one_cursor_per_stream")]


class RawEvent(models.Model):
    """An entry of a job's log, byte for byte."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="events")
    incarnation = models.PositiveIntegerField()
    stream_id = models.CharField(max_length=40)
    kind = models.CharField(max_length=30)
    payload = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "incarnation", "stream_id"], name="one_row_per_event")]


class Report(models.Model):
    """What one worker measured over one iteration; times in seconds."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="reports")
    rank = models.PositiveIntegerField()
    instance = models.CharField(max_length=100)
    generation = models.PositiveIntegerField()
    iteration = models.PositiveIntegerField()
    at = models.DateTimeField()
    samples = models.PositiveIntegerField()
    position = models.BigIntegerField()
    loss = models.FloatField(null=True)
    """Null where the worker reported a value that is not finite."""
    compute_s = models.FloatField()
    push_s = models.FloatField()
    pull_s = models.FloatField()
    waiting_s = models.FloatField()
    coordination_s = models.FloatField()
    cpu = models.FloatField()
    memory = models.FloatField()
    overran = models.BooleanField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "instance", "generation", "iteration"], name="one_row_per_report")
        ]
        indexes = [models.Index(fields=["job", "iteration", "rank"])]


class Evaluation(models.Model):
    """The score of one version of the parameters on the held-out split."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="evaluations")
    iteration = models.PositiveIntegerField()
    at = models.DateTimeField()
    elapsed_s = models.FloatField()
    """Since the job began to run."""
    loss = models.FloatField(null=True)
    accuracy = models.FloatField(null=True)
    samples = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "iteration"], name="one_row_per_evaluation")]
