"""Tables of alerts."""

import uuid

from django.db import models
from django.utils import timezone

from controlplane.alerts.evaluation import Notice, Stage
from controlplane.alerts.rules import Rule as RuleDocument


class Target(models.Model):
    """A notification target: a webhook or email addresses."""

    class Kind(models.TextChoices):
        """How."""

        WEBHOOK = "webhook"
        EMAIL = "email"

    class Format(models.TextChoices):
        """The format of a webhook's body."""

        PACELINE = "paceline"
        SLACK = "slack"

    SEALED = ("sealed",)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    format = models.CharField(max_length=10, choices=Format.choices, default=Format.PACELINE)
    sealed = models.BinaryField()
    """``targets.Address`` as JSON, encrypted: webhook URLs are often secrets."""
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Rule(models.Model):
    """A stored ``rules.Rule``."""

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=40)
    severity = models.CharField(max_length=10)
    enabled = models.BooleanField(default=True)
    where = models.JSONField(default=dict)
    parameters = models.JSONField(default=dict)
    for_s = models.FloatField(default=0.0)
    clear_s = models.FloatField(default=60.0)
    repeat_s = models.FloatField(default=14_400.0)
    targets = models.ManyToManyField(Target, related_name="rules", blank=True)
    since = models.DateTimeField(default=timezone.now)
    """When it was last changed: earlier events raise no alerts."""

    def __str__(self) -> str:
        return self.name

    @property
    def document(self) -> RuleDocument:
        """The rule as a document."""
        return RuleDocument(
            name=self.name,
            kind=self.kind,
            severity=self.severity,  # type: ignore[arg-type]  # only ``services`` writes it
            enabled=self.enabled,
            where=self.where,
            parameters=self.parameters,
            for_s=self.for_s,
            clear_s=self.clear_s,
            repeat_s=self.repeat_s,
            targets=sorted(target.name for target in self.targets.all()),
        )


class Alert(models.Model):
    """An alert: pending, firing or resolved."""

    rule = models.ForeignKey(Rule, null=True, on_delete=models.SET_NULL, related_name="alerts")
    rule_name = models.CharField(max_length=100)
    kind = models.CharField(max_length=40)
    severity = models.CharField(max_length=10)
    key = models.CharField(max_length=300)
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.CASCADE, related_name="alerts")
    labels = models.JSONField(default=dict)
    summary = models.TextField()
    value = models.FloatField(null=True)
    path = models.CharField(max_length=300, default="", blank=True)
    """The page that shows the time at which it started firing."""
    stage = models.CharField(max_length=10, choices=[(stage, stage) for stage in Stage], db_index=True)
    is_event = models.BooleanField(default=False)
    silenced = models.BooleanField(default=False)
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    fired_at = models.DateTimeField(null=True, db_index=True)
    notified_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    is_remembered = models.BooleanField(default=True, db_index=True)
    """Whether the next evaluation needs its state."""

    def __str__(self) -> str:
        return f"alert {self.pk} ({self.rule_name})"


class Silence(models.Model):
    """Suppresses notifications of alerts that match all its fields."""

    rule = models.ForeignKey(Rule, null=True, on_delete=models.CASCADE, related_name="silences")
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.CASCADE, related_name="silences")
    labels = models.JSONField(default=dict)
    reason = models.CharField(max_length=200, default="", blank=True)
    until = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=150)

    @property
    def about(self) -> str:
        """Its subject as text."""
        parts = [f"rule {self.rule.name}"] if self.rule else []
        parts += [f"job {self.job_id}"] if self.job_id else []
        parts += [f"{name}={value}" for name, value in sorted(self.labels.items())]
        return ", ".join(parts) or "all alerts"


class Delivery(models.Model):
    """The delivery of one message to one target."""

    class State(models.TextChoices):
        """The state of the delivery."""

        QUEUED = "queued"
        DELIVERED = "delivered"
        FAILED = "failed"

    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="deliveries")
    """Null: a test of the target."""
    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="deliveries")
    notice = models.CharField(max_length=10, choices=[*((each, each) for each in Notice), ("test", "test")])
    key = models.UUIDField(default=uuid.uuid4, unique=True)
    """The Idempotency-Key of each attempt."""
    message = models.JSONField()
    """``messages.Message``."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED, db_index=True)
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(default="", blank=True)
    """The error of the last attempt."""
    arrived = models.JSONField(default=list)
    """Mail addresses that have received it."""
    created_at = models.DateTimeField(default=timezone.now)
    next_at = models.DateTimeField(default=timezone.now, db_index=True)
    ended_at = models.DateTimeField(null=True)


class Evaluated(models.Model):
    """The state of the last evaluation, in a single row."""

    at = models.DateTimeField()
    marks = models.JSONField(default=dict)
    """``shares.Mark`` of each running job."""
