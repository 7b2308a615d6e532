"""Serializers of jobs, processes and policies."""

from collections.abc import Mapping
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.jobs.blockers import Waiting
from controlplane.jobs.machines import machine_of
from controlplane.jobs.models import Job, Process
from controlplane.jobs.selectors import jobs_synchronization
from controlplane.jobs.waiting import waiting_of
from controlplane.protocol.spec import CHOICES, Choice, Synchronization


class BlockerDocument(serializers.Serializer[Any]):
    """A job that another one waits for."""

    job = serializers.IntegerField(read_only=True)
    name = serializers.CharField(read_only=True, help_text="Empty if the job no longer exists.")
    relation = serializers.ChoiceField(
        ("holds", "ahead"), read_only=True, help_text="It holds suitable slots, or is ahead in the queue."
    )
    worker_slots = serializers.IntegerField(source="workers", read_only=True, help_text="Held or requested.")
    server_slots = serializers.IntegerField(source="servers", read_only=True)
    since = serializers.DateTimeField(read_only=True, allow_null=True, help_text="Submission time of a job ahead.")
    priority = serializers.IntegerField(read_only=True, allow_null=True, help_text="Priority of a job ahead.")


class WaitingDocument(serializers.Serializer[Waiting]):
    """Why a job does not start."""

    sentence = serializers.CharField(read_only=True)
    status = serializers.ChoiceField(
        ("starts", "waits", "never"),
        source="outcome",
        read_only=True,
        help_text="starts: it is about to start; waits: other jobs hold its slots; never: there are too few slots.",
    )
    standing = serializers.ChoiceField(
        ("starts", "waits", "never"), source="outcome", read_only=True, help_text="Deprecated: the same as status."
    )
    ahead = serializers.SerializerMethodField(
        help_text="Number of jobs ahead of it that need slots on the same machines."
    )
    blockers = BlockerDocument(many=True, read_only=True)
    labels = serializers.DictField(source="request.labels", child=serializers.CharField(), read_only=True)
    machines_online = serializers.IntegerField(source="capacity.online", read_only=True)
    machines_matching = serializers.IntegerField(source="capacity.matching", read_only=True)
    worker_slots = serializers.IntegerField(source="capacity.workers", read_only=True)
    server_slots = serializers.IntegerField(source="capacity.servers", read_only=True)
    free_worker_slots = serializers.IntegerField(source="capacity.free_workers", read_only=True)
    free_server_slots = serializers.IntegerField(source="capacity.free_servers", read_only=True)

    def get_ahead(self, waiting: Waiting) -> int:
        """Number of jobs ahead."""
        return len(waiting.ahead)


class StoredCount(serializers.IntegerField):
    """A number in a stored spec; omitted if the spec is invalid in this release."""

    def get_attribute(self, instance: Job) -> int:
        """The number; skipped if it is not an integer."""
        found = super().get_attribute(instance)
        if not isinstance(found, int):
            raise serializers.SkipField
        return found


class JobRows(serializers.ListSerializer[Job]):
    """A list of jobs, whose policies and queue states are read at once."""

    def to_representation(self, data: Any) -> list[Any]:
        """The rows of one page."""
        rows = list(data)
        self.child.chosen, self.child.waits = jobs_synchronization(rows), waiting_of(rows, timezone.now())
        represented: list[Any] = super().to_representation(rows)
        return represented


class JobRow(serializers.ModelSerializer[Job]):
    """A job in a list."""

    submitted_by = serializers.CharField(source="submitted_by.username", default=None, read_only=True, allow_null=True)
    team = serializers.CharField(
        source="team.name",
        default=None,
        read_only=True,
        allow_null=True,
        help_text="The team that owns it; null: none, all users see it.",
    )
    workload = serializers.CharField(source="spec.workload.name", read_only=True)
    dataset = serializers.CharField(source="spec.workload.dataset", read_only=True)
    workers = StoredCount(source="spec.workers", read_only=True)
    servers = StoredCount(source="spec.servers", read_only=True)
    batch_size = StoredCount(source="spec.batch_size", read_only=True)
    policies = serializers.SerializerMethodField()
    launch = serializers.ChoiceField(
        ("native", "attached"),
        read_only=True,
        help_text="native: agents start Paceline's own training loop. attached: a launcher such as torchrun starts a "
        "script, or agents do by the command in its spec.",
    )
    waiting_share = serializers.FloatField(read_only=True)
    coordination_share = serializers.FloatField(read_only=True)
    is_over = serializers.BooleanField(read_only=True)
    waiting = serializers.SerializerMethodField()

    chosen: Mapping[int, Synchronization] | None = None
    waits: Mapping[int, Waiting] | None = None
    """Policies and reasons for waiting of all listed jobs, by ID."""

    class Meta:
        model = Job
        list_serializer_class = JobRows
        fields: tuple[str, ...] = (
            *("id", "name", "launch", "state", "state_since", "awaited", "waiting", "reason", "is_over"),
            *("priority", "created_at", "started_at", "finished_at", "submitted_by", "team"),
            *("workload", "dataset", "workers", "servers", "batch_size", "policies"),
            *("incarnation", "generation", "iteration", "samples", "loss", "accuracy"),
            *("waiting_share", "coordination_share"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_policies(self, job: Job) -> dict[str, str]:
        """The names of the four current policies; empty if the stored spec cannot be read."""
        chosen = (jobs_synchronization([job]) if self.chosen is None else self.chosen).get(job.pk)
        return {question: getattr(chosen, question).name for question in CHOICES} if chosen else {}

    @extend_schema_field(WaitingDocument(allow_null=True))
    def get_waiting(self, job: Job) -> Any:
        """What the job waits for before it can start."""
        waits = waiting_of([job], timezone.now()) if self.waits is None else self.waits
        return WaitingDocument(waits[job.pk]).data if job.pk in waits else None


class JobDocument(JobRow):
    """A job in detail."""

    spec = serializers.JSONField(read_only=True)
    environment = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="Versions by name, at its start."
    )
    model_bytes = serializers.IntegerField(read_only=True, help_text="0 until there is a model to download.")

    class Meta(JobRow.Meta):
        fields = (
            *JobRow.Meta.fields,
            *("busy_s", "waiting_s", "coordination_s", "spec", "environment", "model_bytes"),
        )
        read_only_fields = fields


class SubmittedJob(JobDocument):
    """A job that was just submitted."""

    token = serializers.SerializerMethodField()

    class Meta(JobDocument.Meta):
        fields = (*JobDocument.Meta.fields, "token")
        read_only_fields = fields

    @extend_schema_field({"type": ["string", "null"]})
    def get_token(self, job: Job) -> str | None:
        """The token of an attached job's ranks, in this response only.

        Null for a native job, for one with a command, whose agents have it, and for a repeated idempotency key: POST
        to the job's token to create another one.
        """
        token: str | None = self.context["token"]
        return token


class RestartDocument(serializers.Serializer[Any]):
    """The next start of a process that ended."""

    number = serializers.IntegerField(help_text="Number of restarts caused by failures of this process.")
    allowed = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="When it is started.")
    wants_slot = serializers.BooleanField(
        help_text="Waits for a free slot on another machine, because its own is unreachable."
    )


class BlockTime(serializers.Serializer[Any]):
    """Push and pull times of one block, without delays caused by other workers."""

    block = serializers.IntegerField()
    bytes = serializers.IntegerField()
    push_s = serializers.FloatField()
    pull_s = serializers.FloatField()


class ProcessRow(serializers.ModelSerializer[Process]):
    """One instance of a worker or server."""

    agent = serializers.SerializerMethodField(help_text="The name of its machine, also after that was removed.")
    agent_id = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Null once its machine was removed, and for a rank of a launcher."
    )
    job = serializers.IntegerField(source="job_id", read_only=True)
    emulate = serializers.JSONField(read_only=True)
    environment = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="Versions by name, at its start."
    )
    restart = serializers.SerializerMethodField()
    block_times = serializers.SerializerMethodField()

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_agent(self, process: Process) -> str | None:
        """The name of its machine."""
        found = machine_of(process)
        return found.name if found is not None else None

    @extend_schema_field(BlockTime(many=True))
    def get_block_times(self, process: Process) -> Any:
        """Recent push and pull times of each of a server's blocks; empty before the first measurement."""
        return process.block_times

    @extend_schema_field(RestartDocument(allow_null=True))
    def get_restart(self, process: Process) -> Any:
        """The planned restart of an ended process."""
        return process.restart

    class Meta:
        model = Process
        fields = (
            *("id", "job", "role", "index", "instance", "agent", "agent_id", "slot", "emulate", "environment"),
            *(
                "state",
                "state_since",
                "reason",
                "started_at",
                "ended_at",
                "share",
                "iteration",
                "counts_from",
                "restart",
            ),
            *("blocks", "held_bytes", "push_s", "pull_s", "block_times"),
        )
        read_only_fields = fields


class CheckDocument(serializers.Serializer[Any]):
    """The result of validating a spec."""

    spec = serializers.DictField(help_text="With all defaults.")
    finding = serializers.CharField(help_text="What the job would wait for if it were submitted now.")
    outcome = serializers.ChoiceField(
        ("starts", "waits", "never"), help_text="Whether it would start, wait for slots, or can never start here."
    )


class PolicyField(serializers.DictField):
    """One of the four policies, as written in a spec."""

    def to_representation(self, choice: Choice) -> dict[str, Any]:
        """Its name and parameters in one object."""
        return choice.flat


class PolicyDocument(serializers.Serializer[Any]):
    """A job's current policies."""

    batching = PolicyField(source="synchronization.batching", help_text="Number of samples of each worker.")
    barrier = PolicyField(source="synchronization.barrier", help_text="When a worker may start its next iteration.")
    placement = PolicyField(source="synchronization.placement", help_text="Which server holds which block.")
    data = PolicyField(source="synchronization.data", help_text="Which samples a worker may draw.")
    changes = serializers.IntegerField(help_text="Number of accepted changes.")
    pending = serializers.DictField(help_text="The pending part of the last change, by question.")


class AlternativeDocument(serializers.Serializer[Any]):
    """Other policies for a job, with their predicted savings."""

    name = serializers.CharField(help_text="The alternative's name in simulations.")
    title = serializers.CharField(help_text="The policies of the alternative.")
    request = serializers.DictField(help_text="The body of PATCH jobs/N/policy that changes to it.")
    batching = serializers.CharField(source="target.batching.name")
    barrier = serializers.CharField(source="target.barrier.name")
    iteration_s = serializers.FloatField(help_text="Predicted mean iteration time.")
    waiting = serializers.FloatField(help_text="Predicted waiting, as a fraction of worker time.")
    saved = serializers.FloatField(help_text="Predicted saving, as a fraction of the current time; negative: slower.")
    saved_low = serializers.FloatField(source="low", help_text="Minimum over all simulated runs.")
    saved_high = serializers.FloatField(source="high", help_text="Maximum over all simulated runs.")
    model_error = serializers.FloatField(source="doubt", help_text="Relative error of the model on recorded times.")
    samples = serializers.FloatField(help_text="Processed samples, relative to the current policies.")
    unfinished = serializers.BooleanField(help_text="Whether some simulated run did not complete.")
    advised = serializers.BooleanField(
        source="is_advised",
        help_text="Same barrier and work, and faster in every simulated run by more than the model error.",
    )


class AutopilotRow(serializers.Serializer[Any]):
    """One alternative of a simulation."""

    name = serializers.CharField(help_text="Its policies.")
    saved = serializers.FloatField(help_text="Predicted saving, as a fraction of the time per sample.")
    saved_low = serializers.FloatField(source="low", help_text="Minimum over all simulated runs.")
    saved_high = serializers.FloatField(source="high", help_text="Maximum over all simulated runs.")
    error = serializers.FloatField(help_text="The model error, or the error of the last prediction.")
    verdict = serializers.CharField(help_text="Why it was or was not chosen.")


class AutopilotMeasured(serializers.Serializer[Any]):
    """The measured effect of a switch."""

    before_s = serializers.FloatField(help_text="Seconds per sample before it.")
    after_s = serializers.FloatField(help_text="Seconds per sample after it.")
    gain = serializers.FloatField(help_text="The saved fraction of the time; negative: slower.")
    kept = serializers.BooleanField(help_text="False: samples became slower.")
    goes_back = serializers.BooleanField(help_text="Whether the switch was reverted automatically.")


class AutopilotLook(serializers.Serializer[Any]):
    """One decision of an autopilot."""

    at = serializers.DateTimeField()
    iteration = serializers.IntegerField()
    present = serializers.CharField(help_text="The policies at that time.")
    chosen = serializers.CharField(help_text="The better policies; empty: none.")
    switches = serializers.BooleanField(help_text="Whether the job switched to them; false: only proposed.")
    reason = serializers.CharField()
    rows = AutopilotRow(many=True)
    measured = AutopilotMeasured(allow_null=True, help_text="Null: no switch, or not measured yet.")


class AutopilotDocument(serializers.Serializer[Any]):
    """A job's autopilot."""

    mode = serializers.CharField(help_text="auto, suggest; empty: the job has no autopilot.")
    state = serializers.CharField(help_text="Its current activity, as a sentence.")
    proposal = serializers.DictField(
        help_text="The body of PATCH jobs/N/policy that applies the current proposal; empty: none."
    )
    decisions = AutopilotLook(many=True, source="looks", help_text="The latest first.")


class AutopilotRequest(serializers.Serializer[Any]):
    """The autopilot's mode."""

    mode = serializers.ChoiceField(choices=("auto", "suggest"))


class StopReason(serializers.Serializer[Any]):
    """Why a job is stopped."""

    reason = serializers.CharField(
        max_length=2000, default="", allow_blank=True, help_text="One sentence, such as: Slurm job 123 was cancelled."
    )


class PriorityRequest(serializers.Serializer[Any]):
    """A job's new priority."""

    priority = serializers.IntegerField(min_value=-100, max_value=100, help_text="Higher priorities start first.")


class QueueMove(serializers.Serializer[Any]):
    """The new position of a queued job."""

    before = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, allow_null=True, help_text="Place it before this queued job; null: last."
    )


class PromotionRequest(serializers.Serializer[Any]):
    """The predictor to promote."""

    predictor = serializers.CharField(max_length=100)


class ModelSaved(serializers.Serializer[Any]):
    """A model was stored."""

    job = serializers.IntegerField()
    bytes = serializers.IntegerField()
