"""Tables of history. Only ingest writes them, in the transaction that moves its cursor; except for simulations."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class Cursor(models.Model):
    """The position up to which ingest has copied one stream of one job."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="cursors", db_index=False)
    stream = models.CharField(max_length=10)
    """``events`` or ``commands``."""
    incarnation = models.PositiveIntegerField(default=0)
    position = models.CharField(max_length=40, default="0-0")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "stream"], name="one_cursor_per_stream")]


class MessageCursor(models.Model):
    """The highest message number of one process instance up to which all messages are stored."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="message_cursors", db_index=False)
    instance = models.CharField(max_length=100)
    number = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "instance"], name="one_number_per_instance")]


class EngineSnapshot(models.Model):
    """A recent state of a job's engine: a recovery starts from it if Redis has lost the job.

    It is written in the transaction that moves the cursors past it, so all earlier entries are in the database.
    """

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="engine_snapshot", primary_key=True)
    cursor = models.CharField(max_length=40)
    """The last entry that the engine had handled."""
    sequence = models.BigIntegerField()
    """The number of the engine's last command,"""
    incarnation = models.PositiveIntegerField()
    """in this incarnation."""
    version = models.CharField(max_length=20)
    """Version of the engine's rules; another version may decide differently."""
    data = models.BinaryField()


class DeadLetter(models.Model):
    """An entry of a job's streams that the database refused, or that could not be decoded; kept for diagnosis."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="dead_letters")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    incarnation = models.PositiveIntegerField()
    stream = models.CharField(max_length=10)
    """``events`` or ``commands``."""
    stream_id = models.CharField(max_length=40)
    kind = models.CharField(max_length=30)
    cause = models.TextField()
    """Why it could not be written."""
    payload = models.BinaryField()
    """The first bytes of the entry, as in the stream."""


class RawEvent(models.Model):
    """An entry of a job's log, byte for byte."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="events", db_index=False)
    incarnation = models.PositiveIntegerField()
    stream_id = models.CharField(max_length=40)
    kind = models.CharField(max_length=30)
    payload = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "incarnation", "stream_id"], name="one_row_per_event")]
        indexes = [models.Index(fields=["job", "id"], name="events_as_written")]


class ReportBatch(models.Model):
    """Reports that ingest copied together, as typed arrays (``batches``)."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="report_batches", db_index=False)
    reports = models.PositiveIntegerField()
    """The number of reports."""
    data = models.BinaryField()

    class Meta:
        indexes = [models.Index(fields=["job", "id"], name="batches_as_written")]


class Folded(models.Model):
    """The batch up to which a job's chunks and rollups are complete; they may contain later ones."""

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="folded", primary_key=True)
    batch_id = models.BigIntegerField(default=0)


class Chunk(models.Model):
    """One column of a worker's reports over 1,000 iterations, as a typed array (``columns``)."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="chunks", db_index=False)
    column = models.CharField(max_length=40)
    rank = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    """The first iteration divided by 1,000."""
    data = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "column", "rank", "number"], name="one_chunk_per_column")]


class Rollup(models.Model):
    """Count, sum, minimum and maximum of a worker's columns over windows of 1,000 iterations."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="rollups", db_index=False)
    rank = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    by_1000 = models.BinaryField()
    by_100 = models.BinaryField()
    by_10 = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "rank", "number"], name="one_rollup_per_stretch")]


class LoggedSeries(models.Model):
    """1,000 iterations of one series that a script logs by name (``logged``)."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="logged_series", db_index=False)
    name = models.CharField(max_length=255)
    number = models.PositiveIntegerField()
    """The first iteration divided by 1,000."""
    data = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name", "number"], name="one_block_per_series")]


class Tally(models.Model):
    """Durations of a running job in one bucket of a histogram (``tallies``)."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="tallies", db_index=False)
    name = models.CharField(max_length=20)
    rank = models.IntegerField()
    """-1: for the job as a whole."""
    upto_ms = models.PositiveIntegerField()
    """The bucket's upper bound."""
    count = models.BigIntegerField()
    seconds = models.FloatField()
    """The sum of the durations."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name", "rank", "upto_ms"], name="one_row_per_bucket")]


class WorkerSums(models.Model):
    """Sums over all reports of one worker of a job, over all its instances, and its last values (``tallies``)."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="worker_sums", db_index=False)
    rank = models.PositiveIntegerField()
    instance = models.CharField(max_length=100)
    at_ms = models.BigIntegerField()
    """When its last report arrived."""
    reports = models.BigIntegerField()
    samples = models.BigIntegerField()
    data_s = models.FloatField()
    compute_s = models.FloatField()
    push_s = models.FloatField()
    pull_s = models.FloatField()
    waiting_s = models.FloatField()
    coordination_s = models.FloatField()
    newest = models.JSONField()
    """Measurements of the last report that are not summed, by name."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "rank"], name="one_row_of_sums_per_worker")]


class LogLine(models.Model):
    """A line of the log or output of one process of a job."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="log_lines", db_index=False)
    role = models.CharField(max_length=6)
    index = models.PositiveIntegerField()
    instance = models.CharField(max_length=100)
    at = models.DateTimeField()
    """When it arrived, to about a second."""
    level = models.CharField(max_length=7)
    text = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["job", "id"], name="lines_as_written")]

    @property
    def process(self) -> str:
        """``w0`` or ``s1``."""
        return f"{self.role[0]}{self.index}"


class LogTally(models.Model):
    """How many log lines a job has written, and how many of them were dropped to bound the stored ones."""

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="log_tally")
    lines = models.BigIntegerField(default=0)
    dropped = models.BigIntegerField(default=0)


class Evaluation(models.Model):
    """The score of one version of the parameters on the held-out split."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="evaluations", db_index=False)
    iteration = models.PositiveIntegerField()
    at = models.DateTimeField()
    elapsed_s = models.FloatField()
    """Seconds since the job began to run."""
    loss = models.FloatField(null=True)
    accuracy = models.FloatField(null=True)
    samples = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "iteration"], name="one_row_per_evaluation")]


class Simulation(models.Model):
    """One scenario, simulated under several policies at a user's request."""

    class State(models.TextChoices):
        """Its state."""

        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled"

    scenario = models.CharField(max_length=100)
    policies = models.JSONField()
    """By name, in order."""
    seed = models.PositiveBigIntegerField(default=0)
    variation = models.JSONField(default=dict)
    """Differences from the scenario; empty if there are none."""
    submitted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    team = models.ForeignKey("people.Team", null=True, on_delete=models.PROTECT, related_name="simulations")
    """Owns it and the jobs of its runs; null: none, all users see them."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED, db_index=True)
    reason = models.TextField(default="", blank=True)
    attempt = models.PositiveIntegerField(default=0)
    """How many tasks have started to run it; reports of an earlier task are ignored."""
    seen_at = models.DateTimeField(default=timezone.now)
    """The last heartbeat of the task that runs it, or when it was assigned to one."""
    done = models.PositiveIntegerField(default=0)
    """How many policies have an outcome."""
    outcomes = models.JSONField(default=list)
    """The outcomes, as printed by ``simulate --json``."""
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
