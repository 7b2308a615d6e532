"""The audit trail as a hash chain: the seal of each entry covers it and the seal before, with a key that is not in the
database. So any change or removal of a sealed entry is detected.

Entries are sealed shortly after their commit, in the order in which they became visible, by one process at a
time: sealing them in their own transactions would make all of them wait for one row.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, Max, OuterRef, QuerySet

from controlplane.jobs.models import AuditEntry
from controlplane.people.models import AuditSeal

INFO: Final = b"paceline.audit"
START: Final = "0" * 64
"""The value before the first seal."""

AT_ONCE: Final = 500
LOOK_BACK: Final = 10_000
"""How many entries before the newest sealed one are checked: their transactions may have committed later."""

GRACE: Final = timedelta(minutes=5)
"""An older entry without a seal was not sealed in time, or was inserted by other means."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The result of a verification of the whole chain."""

    sealed: int = 0
    head: str = ""
    """``SEQUENCE:SEAL`` of the last seal. A copy of it shows later whether the end of the chain was removed."""
    faults: list[str] = field(default_factory=list)
    unsealed: int = 0


@transaction.atomic
def seal_pending() -> int:
    """Seal the entries without a seal; returns their number. Concurrent calls cannot fork it: numbers are keys."""
    last = AuditSeal.objects.order_by("-sequence").first()
    newest = AuditSeal.objects.aggregate(newest=Max("entry"))["newest"] or 0
    pending = unsealed().filter(pk__gt=newest - LOOK_BACK).order_by("pk")[:AT_ONCE]
    sequence, previous = (last.sequence, last.seal) if last else (0, START)
    rows = []
    for entry in pending:
        sequence += 1
        previous = _seal_of(entry, previous, settings.SECRET_KEY)
        rows.append(AuditSeal(sequence=sequence, entry=entry.pk, seal=previous, key=_key_name(settings.SECRET_KEY)))
    AuditSeal.objects.bulk_create(rows)
    return len(rows)


def unsealed() -> QuerySet[AuditEntry]:
    """Entries without a seal."""
    return AuditEntry.objects.filter(~Exists(AuditSeal.objects.filter(entry=OuterRef("pk"))))


def verify(now: datetime, *, noted: str = "") -> Verdict:
    """Verify every seal and its entry; ``noted`` is an earlier head, which must still be in the chain."""
    keys = {_key_name(secret): secret for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)}
    found, previous = Verdict(), START
    heads = dict([noted.split(":", 1)]) if noted else {}
    for seal, entry in _sealed_entries(0):
        found.sealed += 1
        if seal.sequence != found.sealed:
            found.faults.append(f"seals {found.sealed} to {seal.sequence - 1} are missing")
            found.sealed = seal.sequence
        if entry is None:
            found.faults.append(f"entry {seal.entry} (seal {seal.sequence}) was removed")
        elif (secret := keys.get(seal.key)) is None:
            found.faults.append(
                f"entry {seal.entry} (seal {seal.sequence}) was sealed under a SECRET_KEY that is not configured: "
                "add it to SECRET_KEY_FALLBACKS"
            )
        elif not hmac.compare_digest(_seal_of(entry, previous, secret), seal.seal):
            found.faults.append(f"entry {seal.entry} (seal {seal.sequence}) was changed, or the one before it")
        if heads.pop(str(seal.sequence), seal.seal) != seal.seal:
            found.faults.append(f"seal {seal.sequence} is not the one that was noted: {noted}")
        previous = seal.seal
    found.faults += [f"seal {sequence} was noted and is missing: the end was cut off" for sequence in heads]
    found.unsealed = unsealed().count()
    if late := unsealed().filter(at__lt=now - GRACE).count():
        found.faults.append(
            f"{late} entries without a seal after {GRACE.seconds // 60} minutes: inserted otherwise or beat is down"
        )
    found.head = f"{found.sealed}:{previous}" if found.sealed else ""
    return found


def exported(since: int, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Sealed entries after that number, as documents: at most ``limit``, without removed ones."""
    found = (
        {"sequence": seal.sequence, **_document(entry), "seal": seal.seal}
        for seal, entry in _sealed_entries(since, min(AT_ONCE, limit or AT_ONCE))
        if entry is not None
    )
    yield from islice(found, limit)


def line_of(document: dict[str, Any]) -> str:
    """A document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _sealed_entries(since: int, at_once: int = AT_ONCE) -> Iterator[tuple[AuditSeal, AuditEntry | None]]:
    """Seals and their entries in the order of the chain, read in pages to bound memory."""
    while seals := list(AuditSeal.objects.filter(sequence__gt=since).order_by("sequence")[:at_once]):
        entries = AuditEntry.objects.in_bulk([seal.entry for seal in seals])
        yield from ((seal, entries.get(seal.entry)) for seal in seals)
        since = seals[-1].sequence


def _document(entry: AuditEntry) -> dict[str, Any]:
    """The part of an entry that its seal covers: not the reference to the job's row, which may be removed."""
    return {
        "id": entry.pk,
        "at": entry.at.isoformat(),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "detail": entry.detail,
    }


def _seal_of(entry: AuditEntry, previous: str, secret: str) -> str:
    text = json.dumps(_document(entry), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hmac.new(_key_of(secret), f"{previous}\n{text}".encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=8)
def _key_of(secret: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=INFO).derive(secret.encode())


def _key_name(secret: str) -> str:
    return hashlib.sha256(_key_of(secret)).hexdigest()[:8]
