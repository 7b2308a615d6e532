"""Tables of the fleet."""

from django.conf import settings
from django.db import models


class EnrolmentToken(models.Model):
    """Lets machines join, as many as its uses; only its hash is stored."""

    digest = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=100, default="")
    """The machine that it is for, known already or not; empty: any unknown machine."""
    labels = models.JSONField(default=dict)
    """Labels for the machine."""
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    uses = models.PositiveIntegerField(default=1)
    used = models.PositiveIntegerField(default=0)
    used_at = models.DateTimeField(null=True)
    """When a machine last joined with it."""
    revoked_at = models.DateTimeField(null=True)
    remove_after = models.DurationField(null=True)
    """How long a machine that joined with it may be offline before it is removed; null: forever."""


class Agent(models.Model):
    """A machine that joined. Redis knows whether it is online now; ``seen_at`` is sampled from it."""

    class State(models.TextChoices):
        """Whether its control socket is open."""

        ONLINE = "online"
        OFFLINE = "offline"

    name = models.CharField(max_length=100, unique=True)
    token = models.ForeignKey(EnrolmentToken, null=True, on_delete=models.SET_NULL, related_name="agents")
    """The token that it joined with, while that is stored: it may join again with it, under this name."""
    pod = models.CharField(max_length=800, default="")
    """The pod that it joined from, as namespace/service account/name: that pod may join again under this name."""
    remove_after = models.DurationField(null=True)
    """How long it may be offline before it is removed; null: forever."""
    credential_digest = models.CharField(max_length=64, unique=True)
    next_digest = models.CharField(max_length=64, unique=True, null=True)
    """Of a new credential that the agent is not yet known to have stored."""
    can_rotate = models.BooleanField(default=False)
    """Whether it accepts a new credential over its connection, as it reports."""
    rotation_asked_at = models.DateTimeField(null=True)
    rotated_at = models.DateTimeField(null=True)
    rotation_failure = models.TextField(default="")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFFLINE)
    version = models.CharField(max_length=40, default="")
    host = models.CharField(max_length=255, default="127.0.0.1")
    labels = models.JSONField(default=dict)
    """Set by its enrolment token only: jobs are placed by these."""
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

    def __str__(self) -> str:
        return self.name


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
    """Measurements without their own column, by name, if the machine has them."""

    class Meta:
        indexes = [models.Index(fields=["agent", "at"])]
