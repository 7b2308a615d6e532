"""Tables of jobs. After submission the engine owns a job's state; only ingest writes these rows."""

import secrets

from django.conf import settings
from django.db import models

from controlplane.core.states import JOB_OVER, JobState, ProcessState
from controlplane.jobs.sealing import seal


def new_job_key() -> bytes:
    """A new secret from which all credentials of a job's processes are derived, encrypted for storage."""
    return seal(secrets.token_bytes(32))


class Job(models.Model):
    """One training run with one spec."""

    name = models.CharField(max_length=100)
    spec = models.JSONField()
    """As ``controlplane.protocol.spec.spec_document`` writes it."""
    submitted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    idempotency_key = models.CharField(max_length=200, null=True)
    SEALED = ("key",)
    key = models.BinaryField(default=new_job_key)
    """Encrypted: see ``sealing``."""
    launch = models.CharField(max_length=8, default="native")
    """``launch`` of the spec: who starts its workers."""
    priority = models.SmallIntegerField(default=0)
    """The spec's priority, until an operator changes it while the job waits."""
    queue_order = models.IntegerField(default=0)
    """The position that an operator gave it among waiting jobs of its priority; the lowest starts first."""
    team = models.ForeignKey("people.Team", null=True, on_delete=models.PROTECT, related_name="jobs")
    """The owning team: only its members see the job; null: all users do."""
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    state = models.CharField(
        max_length=10, choices=[(state, state) for state in JobState], default=JobState.SUBMITTED, db_index=True
    )
    state_since = models.DateTimeField(auto_now_add=True)
    awaited = models.TextField(default="", blank=True)
    reason = models.TextField(default="", blank=True)
    started_at = models.DateTimeField(null=True)
    """When it started to run, so that its first iteration could start."""
    finished_at = models.DateTimeField(null=True)

    incarnation = models.PositiveIntegerField(default=0)
    generation = models.PositiveIntegerField(default=0)
    iteration = models.PositiveIntegerField(default=0)
    """Iterations that every counting worker has reported."""
    samples = models.BigIntegerField(default=0)
    training_samples = models.PositiveBigIntegerField(null=True)
    """Samples of the training split, as its workers report: one epoch; null before the first worker has connected."""
    busy_s = models.FloatField(default=0.0)
    waiting_s = models.FloatField(default=0.0)
    coordination_s = models.FloatField(default=0.0)
    """Sum over all reports of all workers, as the other sums."""
    loss = models.FloatField(null=True)
    accuracy = models.FloatField(null=True)
    """From the last evaluation."""
    simulation = models.ForeignKey("telemetry.Simulation", null=True, on_delete=models.CASCADE, related_name="runs")
    """For a simulated run: its simulation. Its times are virtual, such that it ended when it was stored."""
    policy = models.CharField(max_length=200, default="", blank=True)
    """For a simulated run: the name of its policies in the simulation."""
    environment = models.JSONField(default=dict)
    """Versions of the control plane's software when the job started to run; empty before, and for a simulated run."""
    model_path = models.CharField(max_length=500, default="", blank=True)
    model_bytes = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["submitted_by", "idempotency_key"], name="one_job_per_idempotency_key")
        ]

    def __str__(self) -> str:
        return f"job {self.pk} ({self.name})"

    @property
    def is_over(self) -> bool:
        """Whether the job has ended: nothing changes any more."""
        return self.state in JOB_OVER

    @property
    def has_script(self) -> bool:
        """Whether agents start the script of this attached job, so that it waits for slots as a native job does."""
        return self.launch == "attached" and bool(self.spec.get("command"))

    @property
    def worker_seconds(self) -> float:
        """Sum of all workers' time."""
        return self.busy_s + self.waiting_s + self.coordination_s

    @property
    def waiting_share(self) -> float:
        """Time lost to waiting for other workers, as a share of all workers' time."""
        return self.waiting_s / self.worker_seconds if self.worker_seconds else 0.0

    @property
    def coordination_share(self) -> float:
        """Time lost to waiting for the control plane, as a share of all workers' time."""
        return self.coordination_s / self.worker_seconds if self.worker_seconds else 0.0


class JobToken(models.Model):
    """Token of an attached job's ranks. The secret itself is not stored."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tokens")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=150)
    ends_at = models.DateTimeField(null=True)
    """When it was revoked, or will expire because it was replaced; null: it ends with the job."""


class Process(models.Model):
    """One instance of a worker (``index`` is its rank) or server of a job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="processes", db_index=False)
    role = models.CharField(max_length=6)
    index = models.PositiveIntegerField()
    instance = models.CharField(max_length=100)
    agent = models.ForeignKey("fleet.Agent", null=True, on_delete=models.SET_NULL, related_name="processes")
    machine = models.JSONField(null=True)
    """Its machine once that was removed, as ``controlplane.fleet.removed_machines.Machine``; null before."""
    slot = models.PositiveIntegerField(default=0)
    emulate = models.JSONField(null=True)
    environment = models.JSONField(default=dict)
    """The machine's reported environment when this instance started, and the machine's name at that time: both can
    change."""
    state = models.CharField(max_length=12, choices=[(state, state) for state in ProcessState])
    state_since = models.DateTimeField()
    reason = models.TextField(default="", blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    share = models.PositiveIntegerField(default=0)
    """For a worker: its last share."""
    iteration = models.IntegerField(default=-1)
    """The last iteration that it reported."""
    blocks = models.PositiveIntegerField(default=0)
    held_bytes = models.BigIntegerField(default=0)
    """For a server: the blocks that it holds, and the parameters in them."""
    push_s = models.FloatField(null=True)
    pull_s = models.FloatField(null=True)
    """For a server: the latest duration of a worker's exchange with it; null before one was measured."""
    block_times = models.JSONField(default=list)
    """For a server: the same for each block, as ``block``, ``bytes``, ``push_s``, ``pull_s``."""
    counts_from = models.IntegerField(null=True)
    """For a worker's latest instance: the first iteration in which it is a member; null before."""
    restart = models.JSONField(null=True)
    """For an ended instance: the next restart (``number`` of ``allowed``), its time ``at``, or that it waits for a
    slot (``wants_slot``). Null if none follows."""
    wants_slot = models.BooleanField(default=False)
    """Whether the scheduler should find a slot for its next instance."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "role", "index", "instance"], name="one_row_per_instance")
        ]


class Decision(models.Model):
    """A command of the engine, except orders that merely carry one."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="decisions", db_index=False)
    incarnation = models.PositiveIntegerField()
    sequence = models.BigIntegerField()
    """Rises by one over the job's commands; a new incarnation continues after all numbers that were ever used."""
    at = models.DateTimeField()
    kind = models.CharField(max_length=30)
    """The command's tag: set-shares, set-roster, set-placement, move-job, raise-flag, ..."""
    cause = models.CharField(max_length=40)
    reason = models.TextField()
    iteration = models.IntegerField(null=True)
    payload = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "incarnation", "sequence"], name="one_row_per_decision")]
        indexes = [models.Index(fields=["job", "kind", "sequence"])]


class Flag(models.Model):
    """A finding that a worker or server straggles; open while ``closed_at`` is null."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="flags", db_index=False)
    key = models.CharField(max_length=100)
    subject = models.CharField(max_length=6, default="worker")
    """worker, server, or job."""
    rank = models.PositiveIntegerField()
    """The worker's rank, or the server's index."""
    kind = models.CharField(max_length=20)
    persistence = models.CharField(max_length=10)
    sentence = models.TextField()
    evidence = models.JSONField(default=dict)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closing_reason = models.TextField(default="", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "key"], name="one_row_per_flag")]

    @property
    def title(self) -> str:
        """The name of its subject: ``w3``, ``s0``, ``job``."""
        return "job" if self.subject == "job" else f"{self.subject[:1]}{self.rank}"


class FlagNote(models.Model):
    """A user's note on a flag: acknowledged, or muted until a time.

    The engine owns the finding itself; a mute also applies to a later flag of that kind on the same subject.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="flag_notes", db_index=False)
    key = models.CharField(max_length=100)
    subject = models.CharField(max_length=6)
    rank = models.PositiveIntegerField()
    kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=150)
    at = models.DateTimeField(auto_now=True)
    muted_until = models.DateTimeField(null=True)
    """Null: it was only acknowledged."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "key"], name="one_note_per_flag")]


class AuditEntry(models.Model):
    """A request of a user or a program to the control plane."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=40)
    subject = models.CharField(max_length=100)
    detail = models.JSONField(default=dict)
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="requests")
    entry = models.CharField(max_length=40, default="", blank=True)
    """For a request to a job's engine: the id of its log entry, which decisions name as their cause."""
