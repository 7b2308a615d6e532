"""Delivers what is queued, tries again what fails, and keeps what became of each."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import structlog
from django.db.models import Exists, OuterRef, QuerySet

from controlplane.alerts import mail, webhook
from controlplane.alerts.evaluation import Stage
from controlplane.alerts.messages import Message, body
from controlplane.alerts.models import Delivery, Target
from controlplane.alerts.services import address_of
from controlplane.alerts.targets import Address
from controlplane.alerts.webhook import DeliveryFailed
from controlplane.jobs.sealing import SealBroken

MOST_ATTEMPTS: Final = 10
FIRST_WAIT_S: Final = 5.0
MOST_WAIT_S: Final = 3_600.0
"""Waits double from the first to this: ten attempts take about 45 minutes."""

AT_ONCE: Final = 8
BATCH: Final = 64
DEADLINE_S: Final = 15.0
"""For a batch: an attempt that takes longer counts as failed."""

REVIVED_WITHIN: Final = timedelta(days=1)

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """All that an attempt needs, so that it can be made in a thread without the database."""

    delivery: int
    kind: str
    form: str
    key: str
    message: Message
    address: Address


def deliver_due(now: Callable[[], datetime], *, jitter: Callable[[], float] = random.random) -> int:
    """Attempt what is due; how many were delivered. One process at a time."""
    rows = list(_due(now())[:BATCH])
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
    for row in rows:
        _note(row, outcomes[row.pk], now(), jitter())
    return sum(outcome is None for outcome in outcomes.values())


def has_due(now: datetime) -> bool:
    """Whether anything is to be delivered now."""
    return _due(now).exists()


def failing_targets() -> dict[str, str]:
    """Targets whose last ended delivery failed for good, and why."""
    found = {}
    for target in Target.objects.all():
        last = target.deliveries.exclude(state=Delivery.State.QUEUED).order_by("-ended_at", "-pk").first()
        if last is not None and last.state == Delivery.State.FAILED:
            found[target.name] = last.error
    return found


def _due(now: datetime) -> "QuerySet[Delivery]":
    """Those of one alert to one target in order: its end is not told before its beginning."""
    earlier = Delivery.objects.filter(
        alert=OuterRef("alert"), target=OuterRef("target"), state=Delivery.State.QUEUED, pk__lt=OuterRef("pk")
    )
    queued = Delivery.objects.filter(state=Delivery.State.QUEUED, next_at__lte=now).exclude(Exists(earlier))
    return queued.select_related("target", "alert").order_by("next_at", "pk")


def _attempt(row: Delivery) -> Attempt:
    return Attempt(
        delivery=row.pk,
        kind=row.target.kind,
        form=row.target.format,
        key=str(row.key),
        message=msgspec.convert(row.message, Message),
        address=address_of(row.target),
    )


def _attempted(attempts: Sequence[Attempt]) -> dict[int, DeliveryFailed | None]:
    """Side by side, so that one target that hangs holds up no other."""
    executor = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="alerts")
    futures = {attempt.delivery: executor.submit(partial(_send, attempt)) for attempt in attempts}
    wait(futures.values(), timeout=DEADLINE_S)
    late = DeliveryFailed(f"no answer within {DEADLINE_S:.0f} s")
    outcomes = {number: future.result() if future.done() else late for number, future in futures.items()}
    executor.shutdown(wait=False, cancel_futures=True)
    return outcomes


def _send(attempt: Attempt) -> DeliveryFailed | None:
    try:
        if attempt.kind == Target.Kind.EMAIL:
            mail.send(addresses=attempt.address.addresses, key=attempt.key, message=attempt.message)
        else:
            content = body(attempt.message, attempt.form)
            webhook.send(url=attempt.address.url, secret=attempt.address.secret, key=attempt.key, body=content)
    except DeliveryFailed as error:
        return error
    except Exception as error:  # one that nobody thought of must not keep the others from being delivered
        logger.exception("an alert's delivery failed unexpectedly", delivery=attempt.delivery)
        return DeliveryFailed(f"{type(error).__name__}: {error}"[:500])
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
    row.save(update_fields=["attempts", "error", "state", "ended_at", "next_at"])
    if failed is None:
        _revive(row.target, now)


def wait_s(attempts: int, jitter: float) -> float:
    """How long to wait after so many attempts: doubled each time, and between half and all of it."""
    return float(min(MOST_WAIT_S, FIRST_WAIT_S * 2 ** (attempts - 1)) * (0.5 + jitter / 2))


def _revive(target: Target, now: datetime) -> None:
    """The target works again: say what it missed of alerts that still fire."""
    missed = target.deliveries.filter(
        state=Delivery.State.FAILED, alert__stage=Stage.FIRING, created_at__gt=now - REVIVED_WITHIN
    )
    missed.update(state=Delivery.State.QUEUED, attempts=0, next_at=now, ended_at=None)
