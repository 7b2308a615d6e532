"""Rows as the API shows them, and the small documents that it takes."""

from typing import Any

import msgspec
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from knox.models import AuthToken
from rest_framework import serializers

from controlplane.jobs.flag_notes import notes_on
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.jobs.requests import Request, Stage
from controlplane.jobs.selectors import Waiting, job_synchronization, job_waiting
from controlplane.telemetry.metrics import EVALUATION_METRICS, METRICS
from controlplane.telemetry.models import LogLine, RawEvent

QUESTIONS = ("batching", "barrier", "placement", "data")
MAX_INT = 2**31 - 1
DAY_S = 86_400


class JobRow(serializers.ModelSerializer[Job]):
    """A job in a list."""

    submitted_by = serializers.CharField(source="submitted_by.username", default=None, read_only=True, allow_null=True)
    workload = serializers.CharField(source="spec.workload.name", read_only=True)
    dataset = serializers.CharField(source="spec.workload.dataset", read_only=True)
    workers = serializers.IntegerField(source="spec.workers", read_only=True)
    servers = serializers.IntegerField(source="spec.servers", read_only=True)
    batch_size = serializers.IntegerField(source="spec.batch_size", read_only=True)
    policies = serializers.SerializerMethodField()
    waiting_share = serializers.FloatField(read_only=True)
    is_over = serializers.BooleanField(read_only=True)

    class Meta:
        model = Job
        fields: tuple[str, ...] = (
            *("id", "name", "state", "state_since", "awaited", "reason", "is_over"),
            *("created_at", "started_at", "finished_at", "submitted_by"),
            *("workload", "dataset", "workers", "servers", "batch_size", "policies"),
            *("incarnation", "generation", "iteration", "samples", "loss", "accuracy", "waiting_share"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_policies(self, job: Job) -> dict[str, str]:
        """The four choices by name, as submitted; a job by itself has those that hold now."""
        return {question: job.spec["synchronization"][question]["name"] for question in QUESTIONS}


class WaitingDocument(serializers.Serializer[Waiting]):
    """Why a job does not start."""

    sentence = serializers.CharField(read_only=True)
    ahead = serializers.IntegerField(read_only=True, help_text="Jobs before it in the queue.")
    labels = serializers.DictField(source="spec.labels", child=serializers.CharField(), read_only=True)
    machines_online = serializers.IntegerField(source="capacity.online", read_only=True)
    machines_matching = serializers.IntegerField(source="capacity.matching", read_only=True)
    worker_slots = serializers.IntegerField(source="capacity.workers", read_only=True)
    server_slots = serializers.IntegerField(source="capacity.servers", read_only=True)
    free_worker_slots = serializers.IntegerField(source="capacity.free_workers", read_only=True)
    free_server_slots = serializers.IntegerField(source="capacity.free_servers", read_only=True)


class JobDocument(JobRow):
    """A job by itself."""

    spec = serializers.JSONField(read_only=True)
    environment = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="By name, at its start."
    )
    waiting = serializers.SerializerMethodField()
    model_bytes = serializers.IntegerField(read_only=True, help_text="0 while there is no model to download.")

    class Meta(JobRow.Meta):
        fields = (
            *JobRow.Meta.fields,
            *("busy_s", "waiting_s", "coordination_s", "spec", "environment", "waiting", "model_bytes"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_policies(self, job: Job) -> dict[str, str]:
        """The four choices by name, that hold now."""
        chosen = job_synchronization(job)
        return {question: getattr(chosen, question).name for question in QUESTIONS}

    @extend_schema_field(WaitingDocument(allow_null=True))
    def get_waiting(self, job: Job) -> Any:
        """What the job waits for before it can start."""
        waiting = job_waiting(job)
        return WaitingDocument(waiting).data if waiting else None


class RestartDocument(serializers.Serializer[Any]):
    """The next start of a process that ended."""

    number = serializers.IntegerField(help_text="Which restart it is; 0 where its own end is not the cause.")
    allowed = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="When its pause is over.")
    wants_slot = serializers.BooleanField(help_text="It waits for a free slot: its machine is out of reach.")


class BlockTime(serializers.Serializer[Any]):
    """What exchanges of one block took, without what its server held back for others."""

    block = serializers.IntegerField()
    bytes = serializers.IntegerField()
    push_s = serializers.FloatField()
    pull_s = serializers.FloatField()


class ProcessRow(serializers.ModelSerializer[Process]):
    """One life of a worker or server."""

    agent = serializers.CharField(source="agent.name", default=None, read_only=True, allow_null=True)
    agent_id = serializers.IntegerField(read_only=True, allow_null=True)
    job = serializers.IntegerField(source="job_id", read_only=True)
    emulate = serializers.JSONField(read_only=True)
    environment = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="By name, at its start."
    )
    restart = serializers.SerializerMethodField()
    block_times = serializers.SerializerMethodField()

    @extend_schema_field(BlockTime(many=True))
    def get_block_times(self, process: Process) -> Any:
        """Of a server: what workers' exchanges of each of its blocks took lately; empty before any was measured."""
        return process.block_times

    @extend_schema_field(RestartDocument(allow_null=True))
    def get_restart(self, process: Process) -> Any:
        """Of a life that ended: the one that follows."""
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


class DecisionRow(serializers.ModelSerializer[Decision]):
    """A command that the engine gave."""

    payload = serializers.JSONField(read_only=True)

    class Meta:
        model = Decision
        fields = ("id", "incarnation", "sequence", "at", "kind", "cause", "reason", "iteration", "payload")
        read_only_fields = fields


class FlagRow(serializers.ModelSerializer[Flag]):
    """A finding about a worker, a server or the job."""

    evidence = serializers.JSONField(read_only=True)
    note = serializers.SerializerMethodField()

    class Meta:
        model = Flag
        fields = (
            *("id", "key", "subject", "rank", "kind", "persistence", "sentence", "evidence"),
            *("opened_at", "closed_at", "closing_reason", "note"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": "object", "nullable": True, "additionalProperties": True})
    def get_note(self, flag: Flag) -> dict[str, Any] | None:
        """Who acknowledged or muted it, when, and until when."""
        note = notes_on([flag], timezone.now()).get(flag.pk)
        return None if note is None else msgspec.to_builtins(note)


class CheckDocument(serializers.Serializer[Any]):
    """What a spec would lead to."""

    spec = serializers.DictField(help_text="With all defaults.")
    finding = serializers.CharField(help_text="What it would wait for now.")


class MuteRequest(serializers.Serializer[Any]):
    """For how long nobody is to be told."""

    minutes = serializers.IntegerField(min_value=0, max_value=7 * 24 * 60)


class RequestRow(serializers.Serializer[Request]):
    """Something that somebody asked of a job's engine."""

    id = serializers.IntegerField(help_text="Of the audit entry.")
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    about = serializers.CharField(help_text="w0 is the worker of rank 0, s1 the server of index 1; empty: the job.")
    detail = serializers.DictField()
    stage = serializers.ChoiceField(choices=[stage.value for stage in Stage])
    reason = serializers.CharField(help_text="The engine's sentence; empty while it has not answered.")


class LogLineRow(serializers.ModelSerializer[LogLine]):
    """A line that a process wrote."""

    process = serializers.CharField(help_text="w0 is the worker of rank 0, s1 the server of index 1.")

    class Meta:
        model = LogLine
        fields = ("id", "at", "level", "process", "instance", "text")
        read_only_fields = fields


class EventRow(serializers.ModelSerializer[RawEvent]):
    """An entry of a job's log."""

    event = serializers.SerializerMethodField()

    class Meta:
        model = RawEvent
        fields = ("id", "incarnation", "stream_id", "kind", "event")
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": True})
    def get_event(self, row: RawEvent) -> Any:
        """The event as it was appended."""
        return msgspec.to_builtins(msgspec.msgpack.decode(bytes(row.payload)), str_keys=True)


class PolicyDocument(serializers.Serializer[Any]):
    """What a job runs with now."""

    batching = serializers.SerializerMethodField()
    barrier = serializers.SerializerMethodField()
    placement = serializers.SerializerMethodField()
    data = serializers.SerializerMethodField()
    changes = serializers.IntegerField(help_text="Changes that were asked for and accepted.")
    pending = serializers.DictField(help_text="What was asked for last and waits for its generation, by question.")

    @extend_schema_field(serializers.DictField)
    def get_batching(self, policy: Any) -> Any:
        """How many samples each worker takes."""
        return _choice(policy, "batching")

    @extend_schema_field(serializers.DictField)
    def get_barrier(self, policy: Any) -> Any:
        """When a worker may go on."""
        return _choice(policy, "barrier")

    @extend_schema_field(serializers.DictField)
    def get_placement(self, policy: Any) -> Any:
        """Which server holds which block."""
        return _choice(policy, "placement")

    @extend_schema_field(serializers.DictField)
    def get_data(self, policy: Any) -> Any:
        """Which samples a worker may draw."""
        return _choice(policy, "data")


def _choice(policy: Any, question: str) -> dict[str, Any]:
    choice = getattr(policy.synchronization, question)
    return {"name": choice.name, **choice.parameters}


class PromotionRequest(serializers.Serializer[Any]):
    """Which predictor to act upon."""

    predictor = serializers.CharField(max_length=100)


class EnrolRequest(serializers.Serializer[Any]):
    """A machine asks to join."""

    token = serializers.CharField(max_length=200)
    name = serializers.CharField(max_length=100)


class EnrolReply(serializers.Serializer[Any]):
    """A machine has joined."""

    agent = serializers.IntegerField()
    credential = serializers.CharField(help_text="Shown once; the agent keeps it.")


class EnrolmentTokenRequest(serializers.Serializer[Any]):
    """An invitation for one machine."""

    labels = serializers.DictField(child=serializers.CharField(max_length=200), default=dict)
    lifetime_s = serializers.IntegerField(min_value=1, max_value=30 * DAY_S, default=3600)


class EnrolmentTokenReply(serializers.Serializer[Any]):
    """An invitation, in clear for this once."""

    token = serializers.CharField()
    expires_at = serializers.DateTimeField()
    command = serializers.CharField(help_text="What to run on the machine.")


class TokenRequest(serializers.Serializer[Any]):
    """An API token for oneself."""

    lifetime_s = serializers.IntegerField(min_value=1, max_value=366 * DAY_S, default=30 * DAY_S)


class TokenRow(serializers.ModelSerializer[AuthToken]):
    """An API token, without its secret."""

    id = serializers.CharField(source="token_key", read_only=True)
    created_at = serializers.DateTimeField(source="created", read_only=True)
    expires_at = serializers.DateTimeField(source="expiry", read_only=True, allow_null=True)

    class Meta:
        model = AuthToken
        fields: tuple[str, ...] = ("id", "created_at", "expires_at")


class NewToken(TokenRow):
    """An API token, in clear for this once."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenRow.Meta):
        fields = (*TokenRow.Meta.fields, "token")


class MeasurementsQuery(serializers.Serializer[Any]):
    """Of which workers; of all where none is named."""

    worker = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=MAX_INT), default=list, max_length=256
    )


class MetricsQuery(MeasurementsQuery):
    """Which series to give."""

    metric = serializers.ListField(
        child=serializers.ChoiceField([*METRICS, *EVALUATION_METRICS]), min_length=1, max_length=20
    )
    since = serializers.IntegerField(min_value=0, max_value=MAX_INT, default=0, help_text="First iteration.")
    points = serializers.IntegerField(min_value=4, max_value=10_000, default=500, help_text="Most points per series.")


class SeriesRow(serializers.Serializer[Any]):
    """One metric of one worker, or of the job as a whole."""

    metric = serializers.CharField()
    unit = serializers.CharField()
    worker = serializers.IntegerField(source="rank", allow_null=True)
    raw_points = serializers.IntegerField(help_text="Before thinning.")
    thinned = serializers.BooleanField()
    iterations = serializers.ListField(child=serializers.IntegerField())
    values = serializers.ListField(child=serializers.FloatField())


class MetricsReply(serializers.Serializer[Any]):
    """Series, workers in order of rank."""

    job = serializers.IntegerField()
    since = serializers.IntegerField()
    series = SeriesRow(many=True)


class BlockRow(serializers.Serializer[Any]):
    """A slice of the flattened parameters, in elements, and the server that holds it."""

    index = serializers.IntegerField()
    start = serializers.IntegerField()
    stop = serializers.IntegerField()
    server = serializers.IntegerField()


class PlacementReply(serializers.Serializer[Any]):
    """Which server holds which block now."""

    job = serializers.IntegerField()
    version = serializers.IntegerField()
    policy = serializers.CharField()
    at = serializers.DateTimeField()
    reason = serializers.CharField()
    blocks = BlockRow(many=True)
    elements = serializers.DictField(child=serializers.IntegerField(), help_text="Elements per server.")


class PolicyRow(serializers.Serializer[Any]):
    """A policy that a job can choose."""

    question = serializers.CharField()
    name = serializers.CharField()
    explanation = serializers.CharField()
    paper = serializers.CharField()
    defaults = serializers.DictField()
    schema = serializers.DictField(help_text="JSON schema of its parameters.")
    parts = serializers.DictField(child=serializers.CharField())


class DatasetRow(serializers.Serializer[Any]):
    """A data set that a workload can be trained on."""

    name = serializers.CharField()
    explanation = serializers.CharField()
    defaults = serializers.DictField()
    schema = serializers.DictField(help_text="JSON schema of its options, `workload.data` in a spec.")


class WorkloadRow(serializers.Serializer[Any]):
    """A workload that a job can choose."""

    name = serializers.CharField()
    explanation = serializers.CharField()
    defaults = serializers.DictField()
    schema = serializers.DictField(help_text="JSON schema of its options, `workload.options` in a spec.")
    datasets = serializers.ListField(child=serializers.CharField())
    data = DatasetRow(many=True)


class MeReply(serializers.Serializer[Any]):
    """Who asks, and what they may."""

    username = serializers.CharField()
    role = serializers.ChoiceField(("viewer", "operator", "admin"), allow_null=True)


class ModelSaved(serializers.Serializer[Any]):
    """A model was stored."""

    job = serializers.IntegerField()
    bytes = serializers.IntegerField()


class FieldErrorRow(serializers.Serializer[Any]):
    """One field at fault."""

    field = serializers.CharField(allow_blank=True)
    found = serializers.JSONField()
    expected = serializers.CharField()


class ProblemDocument(serializers.Serializer[Any]):
    """RFC 9457 problem+json; the members of the first field at fault stand at the top as well."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    trace_id = serializers.CharField(required=False)
    field = serializers.CharField(required=False, allow_blank=True)
    found = serializers.JSONField(required=False)
    expected = serializers.CharField(required=False)
    errors = FieldErrorRow(many=True, required=False)
