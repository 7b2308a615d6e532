"""Tables of the fleet."""

from django.conf import settings
from django.db import models


class EnrolmentToken(models.Model):
    """Lets machines join, as many as it has uses; only its hash is kept."""

    digest = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=100, default="")
    """The machine that it is for, known already or not; empty: any that is not known yet."""
    labels = models.JSONField(default=dict)
    """Labels for the machine."""
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    uses = models.PositiveIntegerField(default=1)
    used = models.PositiveIntegerField(default=0)
    used_at = models.DateTimeField(null=True)
    """When a machine joined on it last."""
    revoked_at = models.DateTimeField(null=True)
    remove_after = models.DurationField(null=True)
    """How long a machine that joined on it may be offline before it is removed; null: for ever."""


class Agent(models.Model):
    """A machine that joined. Whether it is here now is in Redis; ``seen_at`` is that, sampled."""

    class State(models.TextChoices):
        """Whether its control socket is open."""

        ONLINE = "online"
        OFFLINE = "offline"

    name = models.CharField(max_length=100, unique=True)
    token = models.ForeignKey(EnrolmentToken, null=True, on_delete=models.SET_NULL, related_name="agents")
    """The one that it joined on, for as long as that is kept: it may join again on it, under this name."""
    pod = models.CharField(max_length=800, default="")
    """The pod that it joined from, as namespace/service account/name: that one may join again under this name."""
    remove_after = models.DurationField(null=True)
    """How long it may be offline before it is removed; null: for ever."""
    credential_digest = models.CharField(max_length=64, unique=True)
    next_digest = models.CharField(max_length=64, unique=True, null=True)
    """Of a credential that was made for it, and that it has not been known to keep."""
    can_rotate = models.BooleanField(default=False)
    """Whether it takes a new credential over its connection, as it says itself."""
    rotation_asked_at = models.DateTimeField(null=True)
    rotated_at = models.DateTimeField(null=True)
    rotation_failure = models.TextField(default="")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFFLINE)
    version = models.CharField(max_length=40, default="")
    host = models.CharField(max_length=255, default="127.0.0.1")
    labels = models.JSONField(default=dict)
    """Set by its enrolment token only: jobs are placed by these."""
    unverified_labels = models.JSONField(default=dict)
    """What else it says of itself: shown, and good for nothing more."""
    slots = models.JSONField(default=list)
    """One entry per worker slot: ``{"emulate": {"samples_per_second": 250} | null}``."""
    server_slots = models.PositiveIntegerField(default=0)
    cpu_count = models.PositiveIntegerField(default=1)
    memory_bytes = models.BigIntegerField(default=0)
    environment = models.JSONField(default=dict)
    """``controlplane.protocol.messages.Environment``, as it last said; empty of an agent that says nothing of it."""
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
    """Measurements that have no column of their own, by name, as far as the machine has them."""

    class Meta:
        indexes = [models.Index(fields=["agent", "at"])]
