"""Users' notes on flags: acknowledged, or muted for a while. The engine owns the finding itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.jobs.models import Flag, FlagNote


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note's author, its time, and until when the flag is muted (None: it was only acknowledged)."""

    actor: str
    at: datetime
    muted_until: datetime | None


def flag_acknowledge(*, flag: Flag, actor: str) -> None:
    """Acknowledge the flag; a current mute stays."""
    FlagNote.objects.update_or_create(job=flag.job, key=flag.key, defaults=_about(flag, actor))


def flag_mute(*, flag: Flag, actor: str, until: datetime | None) -> None:
    """Mute findings of this kind about the flag's subject until ``until``; None: unmute."""
    if until is None:
        same = {"job": flag.job, "subject": flag.subject, "rank": flag.rank, "kind": flag.kind}
        FlagNote.objects.filter(**same).update(muted_until=None)
        return
    FlagNote.objects.update_or_create(job=flag.job, key=flag.key, defaults=_about(flag, actor) | {"muted_until": until})


def notes_on(flags: Iterable[Flag], now: datetime) -> dict[int, Note]:
    """By the flag's primary key: the current mute, otherwise the acknowledgement."""
    rows = list(flags)
    found = FlagNote.objects.filter(job__in={flag.job_id for flag in rows}).order_by("at")
    by_key: dict[tuple[int, str], FlagNote] = {}
    mutes: dict[tuple[int, str, int, str], FlagNote] = {}
    for each in found:
        by_key[each.job_id, each.key] = each
        if each.muted_until is not None and each.muted_until > now:
            mutes[each.job_id, each.subject, each.rank, each.kind] = each
    notes: dict[int, Note] = {}
    for flag in rows:
        mute = mutes.get((flag.job_id, flag.subject, flag.rank, flag.kind))
        seen = by_key.get((flag.job_id, flag.key))
        note = mute or seen
        if note is not None:
            notes[flag.pk] = Note(actor=note.actor, at=note.at, muted_until=mute.muted_until if mute else None)
    return notes


def mute_end(now: datetime, minutes: int) -> datetime:
    """The end of a mute of ``minutes`` that starts now."""
    return now + timedelta(minutes=minutes)


def _about(flag: Flag, actor: str) -> dict[str, object]:
    return {"subject": flag.subject, "rank": flag.rank, "kind": flag.kind, "actor": actor[:150]}
