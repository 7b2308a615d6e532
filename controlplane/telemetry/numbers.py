"""Up to which message number each process's messages are stored without a gap; updated in the same transaction."""

from collections.abc import Iterable, Mapping

from django.db import connection

from controlplane.core.events import Event, ServerHeard, WorkerHeard
from controlplane.jobs.rows import update_rows
from controlplane.telemetry.models import Spoken


def advanced(known: Mapping[str, int], events: Iterable[Event]) -> dict[str, int]:
    """Those instances whose number rises by these events, in order of the log.

    A message after a gap does not count: the engine refuses it too, and its sender resends all from the gap on.
    """
    risen: dict[str, int] = {}
    for event in events:
        if isinstance(event, WorkerHeard | ServerHeard):
            instance, number = event.instance, event.message.number
            if number == risen.get(instance, known.get(instance, 0)) + 1:
                risen[instance] = number
    return risen


def record_numbers(job_id: int, risen: Mapping[str, int]) -> None:
    """Store the numbers. Called by ingest, in the transaction that writes the messages."""
    table = connection.ops.quote_name(Spoken._meta.db_table)
    update_rows(
        f"INSERT INTO {table} (job_id, instance, number) VALUES (%s, %s, %s)"
        " ON CONFLICT (job_id, instance) DO UPDATE SET number = excluded.number",
        [(job_id, instance, number) for instance, number in sorted(risen.items())],
    )


def recorded_numbers(job_id: int) -> dict[str, int]:
    """The numbers of every instance of the job that ever sent a message."""
    return dict(Spoken.objects.filter(job_id=job_id).values_list("instance", "number"))
