"""The message number up to which each process's messages are stored without a gap; updated in the same transaction."""

from collections.abc import Iterable, Mapping

from django.db import connection

from controlplane.core.events import Event, ServerMessageReceived, WorkerMessageReceived
from controlplane.jobs.rows import update_rows
from controlplane.telemetry.models import MessageCursor


def next_messages(known: Mapping[str, int], events: Iterable[Event]) -> tuple[list[bool], dict[str, int]]:
    """For each event, in log order, whether it is the next message of its sender; and the new numbers.

    A repeated message is not, and neither is a message after a gap: the engine rejects it too, and its sender resends
    all messages from the gap on.
    """
    risen: dict[str, int] = {}
    are_next: list[bool] = []
    for event in events:
        is_next = False
        if isinstance(event, WorkerMessageReceived | ServerMessageReceived):
            instance, number = event.instance, event.message.number
            is_next = number == risen.get(instance, known.get(instance, 0)) + 1
            if is_next:
                risen[instance] = number
        are_next.append(is_next)
    return are_next, risen


def record_numbers(job_id: int, risen: Mapping[str, int]) -> None:
    """Store the numbers. Called by ingest, in the transaction that writes the messages."""
    table = connection.ops.quote_name(MessageCursor._meta.db_table)
    update_rows(
        f"INSERT INTO {table} (job_id, instance, number) VALUES (%s, %s, %s)"
        " ON CONFLICT (job_id, instance) DO UPDATE SET number = excluded.number",
        [(job_id, instance, number) for instance, number in sorted(risen.items())],
    )


def recorded_numbers(job_id: int) -> dict[str, int]:
    """The numbers of every instance of the job that ever sent a message."""
    return dict(MessageCursor.objects.filter(job_id=job_id).values_list("instance", "number"))
