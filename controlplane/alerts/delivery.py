"""Delivers queued messages, retries failed attempts, and records the results."""

import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog
from django.db.models import Exists, F, OuterRef, QuerySet, Window
from django.db.models.functions import RowNumber

from controlplane.alerts import mail, webhook
from controlplane.alerts.evaluation import Notice, Stage
from controlplane.alerts.messages import Message, body
from controlplane.alerts.models import Delivery, Target
from controlplane.alerts.services import address_of
from controlplane.alerts.targets import Address
from controlplane.alerts.webhook import DeliveryFailed
from controlplane.jobs.sealing import SealBroken

MOST_ATTEMPTS: Final = 10
FIRST_WAIT_S: Final = 5.0
MOST_WAIT_S: Final = 3_600.0
"""The wait doubles up to this maximum: ten attempts take 21 to 43 minutes, 32 on average."""

PER_TARGET: Final = 8
"""Maximum number of messages per target in a batch, so that a long queue of one target does not block others."""

DEADLINE_S: Final = 15.0
"""Time limit of a batch: a started attempt that takes longer counts as failed."""

REVIVED_WITHIN: Final = timedelta(days=1)
UNHEARD: Final = "not sent: the target never received the firing message"

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The data of an attempt, so that a thread can make it without the database."""

    delivery: int
    target: int
    kind: str
    form: str
    key: str
    message: Message
    address: Address
    arrived: set[str]
    """Mail addresses that have received it. An attempt adds to it at once, so that a late success is not repeated."""


def deliver_due(now: Callable[[], datetime], *, jitter: Callable[[], float] = random.random) -> int:
    """Attempt all due deliveries. Returns how many succeeded. One process at a time."""
    rows = _dropped(list(_batch(now())), now())
    if not rows:
        return 0
    attempts: list[Attempt] = []
    outcomes: dict[int, DeliveryFailed | None] = {}
    for row in rows:
        try:
            attempts.append(_attempt(row))
        except (SealBroken, msgspec.DecodeError) as error:
            outcomes[row.pk] = DeliveryFailed(str(error), for_good=True)
    outcomes |= _attempted(attempts)
    arrived = {attempt.delivery: sorted(frozenset(attempt.arrived)) for attempt in attempts}
    for row in rows:
        row.arrived = arrived.get(row.pk, row.arrived)
        if row.pk in outcomes:
            _note(row, outcomes[row.pk], now(), jitter())
    return sum(outcome is None for outcome in outcomes.values())


def has_due(now: datetime) -> bool:
    """Whether any message is due now."""
    return _due(now).exists()


def failing_targets() -> dict[str, str]:
    """Targets whose last finished delivery failed permanently, with the error."""
    found = {}
    for target in Target.objects.all():
        ended = target.deliveries.exclude(state=Delivery.State.QUEUED).filter(attempts__gt=0)
        last = ended.order_by("-ended_at", "-pk").first()
        if last is not None and last.state == Delivery.State.FAILED:
            found[target.name] = last.error
    return found


def _due(now: datetime) -> "QuerySet[Delivery]":
    """Due deliveries, in order per alert and target: a resolved message is not sent before the firing one."""
    earlier = Delivery.objects.filter(
        alert=OuterRef("alert"), target=OuterRef("target"), state=Delivery.State.QUEUED, pk__lt=OuterRef("pk")
    )
    queued = Delivery.objects.filter(state=Delivery.State.QUEUED, next_at__lte=now).exclude(Exists(earlier))
    return queued.select_related("target", "alert").order_by("next_at", "pk")


def _batch(now: datetime) -> "QuerySet[Delivery]":
    place = Window(RowNumber(), partition_by=F("target"), order_by=("next_at", "pk"))
    return _due(now).annotate(place=place).filter(place__lte=PER_TARGET)


def _dropped(rows: Sequence[Delivery], now: datetime) -> list[Delivery]:
    """Drop resolved messages of alerts whose firing message never reached the target: these deliveries end here."""
    kept = []
    for row in rows:
        delivered = Delivery.objects.filter(alert=row.alert_id, target=row.target_id, state=Delivery.State.DELIVERED)
        if row.notice != Notice.RESOLVED or delivered.filter(pk__lt=row.pk).exists():
            kept.append(row)
            continue
        queued = Delivery.objects.filter(pk=row.pk, state=Delivery.State.QUEUED)
        queued.update(state=Delivery.State.FAILED, ended_at=now, error=UNHEARD)
    return kept


def _attempt(row: Delivery) -> Attempt:
    return Attempt(
        delivery=row.pk,
        target=row.target_id,
        kind=row.target.kind,
        form=row.target.format,
        key=str(row.key),
        message=msgspec.convert(row.message, Message),
        address=address_of(row.target),
        arrived=set(row.arrived),
    )


def _attempted(attempts: Sequence[Attempt]) -> dict[int, DeliveryFailed | None]:
    """Make the attempts and return the results. Targets are handled in parallel, so that a hanging one delays no other.

    After a failure, the target's other messages in this batch are not attempted.
    """
    queues: defaultdict[int, deque[Attempt]] = defaultdict(deque)
    for attempt in attempts:
        queues[attempt.target].append(attempt)
    outcomes: dict[int, DeliveryFailed | None] = {}
    executor = ThreadPoolExecutor(max_workers=max(1, len(queues)), thread_name_prefix="alerts")
    deadline = time.monotonic() + DEADLINE_S
    in_progress: dict[Future[DeliveryFailed | None], Attempt] = {}

    def begin(attempt: Attempt) -> None:
        in_progress[executor.submit(_send, attempt)] = attempt

    for queue in queues.values():
        begin(queue.popleft())
    while in_progress and (left_s := deadline - time.monotonic()) > 0:
        for future in wait(in_progress, timeout=left_s, return_when=FIRST_COMPLETED).done:
            attempt, failed = in_progress.pop(future), future.result()
            outcomes[attempt.delivery] = failed
            queue = queues[attempt.target]
            if queue and (failed is None or failed.for_good):
                begin(queue.popleft())
    executor.shutdown(wait=False)
    late = DeliveryFailed(f"no response within {DEADLINE_S:.0f} s")
    return outcomes | {attempt.delivery: late for attempt in in_progress.values()}


def _send(attempt: Attempt) -> DeliveryFailed | None:
    try:
        if attempt.kind == Target.Kind.EMAIL:
            mail.send(attempt.address.addresses, arrived=attempt.arrived, key=attempt.key, message=attempt.message)
        else:
            content = body(attempt.message, attempt.form)
            webhook.send(url=attempt.address.url, secret=attempt.address.secret, key=attempt.key, body=content)
    except DeliveryFailed as error:
        return error
    except Exception as error:  # an unexpected error must not prevent other deliveries
        logger.exception("an alert's delivery failed unexpectedly", delivery=attempt.delivery)
        return DeliveryFailed(webhook.hidden(f"{type(error).__name__}: {error}", attempt.address.url)[:500])
    return None


def _note(row: Delivery, failed: DeliveryFailed | None, now: datetime, jitter: float) -> None:
    row.attempts += 1
    row.error = "" if failed is None else str(failed)
    if failed is None:
        row.state, row.ended_at = Delivery.State.DELIVERED, now
    elif failed.for_good or row.attempts >= MOST_ATTEMPTS:
        row.state, row.ended_at = Delivery.State.FAILED, now
        logger.warning("an alert was not delivered", target=row.target.name, attempts=row.attempts, why=row.error)
    else:
        row.next_at = now + timedelta(seconds=max(failed.wait_s, wait_s(row.attempts, jitter)))
    noted = ("arrived", "attempts", "error", "state", "ended_at", "next_at")
    queued = Delivery.objects.filter(pk=row.pk, state=Delivery.State.QUEUED)  # its target may have been removed
    is_there = queued.update(**{name: getattr(row, name) for name in noted})
    if is_there and failed is None:
        _revive(row.target, now)


def wait_s(attempts: int, jitter: float) -> float:
    """The wait after this many attempts: exponential backoff with a jitter between half and all of it."""
    return float(min(MOST_WAIT_S, FIRST_WAIT_S * 2 ** (attempts - 1)) * (0.5 + jitter / 2))


def _revive(target: Target, now: datetime) -> None:
    """The target works again: requeue the newest message of each firing alert if its delivery was given up.

    Messages with fewer attempts were rejected permanently and are not requeued.
    """
    later = Delivery.objects.filter(alert=OuterRef("alert"), target=OuterRef("target"), pk__gt=OuterRef("pk"))
    missed = target.deliveries.filter(
        state=Delivery.State.FAILED,
        attempts__gte=MOST_ATTEMPTS,
        alert__stage=Stage.FIRING,
        created_at__gt=now - REVIVED_WITHIN,
    ).exclude(Exists(later))
    numbers = list(missed.values_list("pk", flat=True))
    Delivery.objects.filter(pk__in=numbers).update(state=Delivery.State.QUEUED, attempts=0, next_at=now, ended_at=None)
