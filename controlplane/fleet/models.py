"""Tables of the fleet."""

from django.conf import settings
from django.db import models


class EnrolmentToken(models.Model):
    """A token with which as many machines can join as it has uses; only its hash is stored."""

    digest = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=100, default="")
    """The machine that may join with it, known or not; empty: any unknown machine, and those of earlier fleets."""
    labels = models.JSONField(default=dict)
    """Labels for the machine."""
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    """Null: the command line created it, or the user was deleted."""
    from_command_line = models.BooleanField(default=False)
    """Whether the command line created it."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    uses = models.PositiveIntegerField(default=1)
    used = models.PositiveIntegerField(default=0)
    """Machines that joined with it. Those that were removed do not count if it is reusable."""
    used_at = models.DateTimeField(null=True)
    """When a machine last joined with it."""
    revoked_at = models.DateTimeField(null=True)
    remove_after = models.DurationField(null=True)
    """How long a machine that joined with it may be offline before it is removed; null: forever."""


class Agent(models.Model):
    """A machine that joined. Redis knows whether it is online now; ``seen_at`` is sampled from Redis."""

    class State(models.TextChoices):
        """Whether its control socket is open."""

        ONLINE = "online"
        OFFLINE = "offline"

    name = models.CharField(max_length=100, unique=True)
    token = models.ForeignKey(EnrolmentToken, null=True, on_delete=models.SET_NULL, related_name="agents")
    """The token that it joined with, if it still exists: it may join again with it, under this name."""
    pod = models.CharField(max_length=800, default="")
    """The pod that it joined from, as namespace/service account/name: that pod may join again under this name."""
    team = models.ForeignKey("people.Team", null=True, on_delete=models.PROTECT, related_name="agents")
    """The owning team: only its jobs run on the machine; null: all jobs do."""
    remove_after = models.DurationField(null=True)
    """How long it may be offline before it is removed; null: forever."""
    credential_digest = models.CharField(max_length=64, unique=True)
    next_digest = models.CharField(max_length=64, unique=True, null=True)
    """Hash of a new credential that the agent has not yet confirmed."""
    credential_expires_at = models.DateTimeField(null=True)
    """Null: never."""
    renewal_asked_at = models.DateTimeField(null=True)
    """When a renewal was last requested; equal to ``rotation_asked_at`` while the renewal is the
    current rotation."""
    can_rotate = models.BooleanField(default=False)
    """Whether it accepts a new credential over its connection, as it reports."""
    can_test = models.BooleanField(default=False)
    """Whether it accepts orders of tests, as it reports."""
    runs_scripts = models.BooleanField(default=False)
    """Whether it starts scripts of jobs, as it reports."""
    rotation_asked_at = models.DateTimeField(null=True)
    rotated_at = models.DateTimeField(null=True)
    rotation_failure = models.TextField(default="")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFFLINE)
    version = models.CharField(max_length=40, default="")
    host = models.CharField(max_length=255, default="127.0.0.1")
    labels = models.JSONField(default=dict)
    """Labels set by its enrolment token only. Jobs are placed by these and by ``added_labels``."""
    added_labels = models.JSONField(default=dict)
    """Labels set by admins; they cannot override a key of ``labels``."""
    unverified_labels = models.JSONField(default=dict)
    """Labels that it reports itself: displayed only."""
    slots = models.JSONField(default=list)
    """One entry per worker slot: ``{"emulate": {"samples_per_second": 250} | null}``."""
    server_slots = models.PositiveIntegerField(default=0)
    cpu_count = models.PositiveIntegerField(default=1)
    memory_bytes = models.BigIntegerField(default=0)
    environment = models.JSONField(default=dict)
    """``controlplane.protocol.messages.Environment``, as last reported; empty for an agent that does not report it."""
    joined_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(null=True)

    class Scheduling(models.TextChoices):
        """Whether jobs get slots on it."""

        OPEN = "open"
        CORDONED = "cordoned"
        """No new processes; running ones continue."""
        DRAINING = "draining"
        """No new processes; running ones leave. The machine is drained when no job holds a slot of it."""

    scheduling = models.CharField(max_length=10, choices=Scheduling.choices, default=Scheduling.OPEN)
    scheduling_reason = models.CharField(max_length=300, default="", blank=True)
    scheduling_by = models.CharField(max_length=150, default="", blank=True)
    scheduling_since = models.DateTimeField(null=True)
    scheduling_window = models.BigIntegerField(null=True)
    """The maintenance window that closed it and will open it; null: it is open, or a user closed it."""

    def __str__(self) -> str:
        return self.name

    @property
    def placed_by(self) -> dict[str, str]:
        """The labels that decide which jobs run on it."""
        return {**self.added_labels, **self.labels}


class Reservation(models.Model):
    """A slot that a job holds, from its scheduling to its end."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="reservations")
    role = models.CharField(max_length=6)
    slot = models.PositiveIntegerField()
    job_id = models.BigIntegerField(db_index=True)
    index = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "role", "slot"], name="one_process_per_slot"),
            models.UniqueConstraint(fields=["job_id", "role", "index"], name="one_slot_per_process"),
        ]


class AgentSample(models.Model):
    """A machine's load, sampled every 10 s from Redis."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    cpu = models.FloatField()
    memory = models.FloatField()
    others = models.JSONField(default=dict)
    """Measurements without their own column, by name, as far as the machine has them."""

    class Meta:
        indexes = [models.Index(fields=["agent", "at"])]


class Move(models.Model):
    """The move of one process away from a drained machine."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="moves")
    job_id = models.BigIntegerField()
    role = models.CharField(max_length=6)
    index = models.PositiveIntegerField()
    stage = models.CharField(max_length=10)
    """``controlplane.scheduling.draining.Stage``."""
    note = models.CharField(max_length=300, default="", blank=True)
    """Why it stays, or the answer of the job's engine."""
    entry = models.CharField(max_length=40, default="", blank=True)
    """Id of the job's log entry with the last request."""
    servers_before = models.PositiveIntegerField(default=0)
    began_at = models.DateTimeField()
    asked_at = models.DateTimeField()
    """When the last request was made."""
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "job_id", "role", "index"], condition=models.Q(ended_at=None), name="one_open_move"
            )
        ]


class MaintenanceWindow(models.Model):
    """A period in which a machine takes no new processes: it is cordoned or drained before it, and opened after it."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="windows")
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    action = models.CharField(max_length=6)
    """``cordon`` or ``drain``."""
    lead_s = models.PositiveIntegerField(default=0)
    """How long before its start the machine is closed, since a drain takes time."""
    reason = models.CharField(max_length=300, default="", blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    applied_at = models.DateTimeField(null=True)
    """When the machine was closed for it."""
    over_at = models.DateTimeField(null=True)
    """When it ended or was cancelled."""


class MachineTest(models.Model):
    """A test of a machine: its state, and its result or failure. Only the latest are kept."""

    class State(models.TextChoices):
        """The progress of a test."""

        STARTING = "starting"
        """The far ends of its links have been requested to listen."""
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="tests")
    state = models.CharField(max_length=10, choices=State.choices, default=State.STARTING)
    nonce = models.CharField(max_length=32)
    """The test's key is derived from it and ``SECRET_KEY``."""
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    forced = models.BooleanField(default=False)
    """Whether it was tested although processes of jobs ran on the machine."""
    far_ends = models.JSONField(default=list)
    """One for each link: agent, name, port (null before it listens) and failure."""
    ended_at = models.DateTimeField(null=True)
    result = models.JSONField(default=dict)
    """The fields of ``MachineTested`` that are not 0."""
    note = models.CharField(max_length=300, default="", blank=True)
    """A warning if the result may be unreliable."""
    failure = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent"], condition=models.Q(ended_at=None), name="one_open_test")
        ]
