"""Job keys at rest: encrypted, and carried over to another secret."""

from importlib import import_module
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.management.commands import reseal
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import SealBroken, resealed, seal, unseal

NEW = "n" * 60


@given(key=st.binary(max_size=64))
def test_a_key_is_restored_and_not_stored_in_plain_text(key: bytes) -> None:
    stored = seal(key)
    assert unseal(stored) == key
    assert len(key) < 4 or (key not in stored and seal(key) != stored)


def test_a_key_that_was_changed_is_refused() -> None:
    stored = bytearray(seal(b"k" * 32))
    stored[30] ^= 1
    with pytest.raises(SealBroken, match="SECRET_KEY_FALLBACKS"):
        unseal(bytes(stored))


@pytest.mark.django_db
def test_another_secret_takes_over(settings: Any) -> None:
    old, job = settings.SECRET_KEY, Job.objects.create(name="one", spec={})
    key = unseal(job.key)
    settings.SECRET_KEY = NEW
    with pytest.raises(SealBroken):
        unseal(job.key)
    with pytest.raises(CommandError, match=f"job {job.pk}: .* nothing was changed"):
        call_command("reseal")
    settings.SECRET_KEY_FALLBACKS = [old]
    assert unseal(job.key) == key
    with pytest.raises(CommandError, match=r"1 keys are stored under another SECRET_KEY: run manage\.py reseal before"):
        call_command("reseal", "--check")
    assert Job.objects.get().key == job.key
    told = StringIO()
    call_command("reseal", stdout=told)
    call_command("reseal", "--check", stdout=StringIO())
    assert told.getvalue() == "1 keys are stored under the present SECRET_KEY\n"
    settings.SECRET_KEY_FALLBACKS = []
    job.refresh_from_db()
    assert unseal(job.key) == key


@pytest.mark.django_db
def test_a_key_that_is_written_meanwhile_is_kept(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the read and the write of its row, another process stores a new key."""
    job = Job.objects.create(name="one", spec={})
    old, newer = settings.SECRET_KEY, []

    def while_another_writes(stored: bytes) -> bytes:
        done = resealed(stored)
        if not newer:
            newer.append(seal(b"n" * 32))
            Job.objects.filter(pk=job.pk).update(key=newer[0])
        return done

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [old]
    monkeypatch.setattr(reseal, "resealed", while_another_writes)
    call_command("reseal")
    job.refresh_from_db()
    assert unseal(job.key) == b"n" * 32


@pytest.mark.django_db
def test_keys_that_appear_under_the_old_secret_meanwhile_are_found(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that still has the old ``SECRET_KEY`` accepts a job after its rows were read."""
    Job.objects.create(name="one", spec={})
    old, late = settings.SECRET_KEY, []

    def while_another_submits(stored: bytes) -> bytes:
        if not late:
            settings.SECRET_KEY = old
            late.append(Job.objects.create(name="late", spec={}))
            settings.SECRET_KEY = NEW
        return resealed(stored)

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [old]
    monkeypatch.setattr(reseal, "resealed", while_another_submits)
    told = StringIO()
    call_command("reseal", stdout=told)
    settings.SECRET_KEY_FALLBACKS = []
    assert [len(unseal(job.key)) for job in Job.objects.all()] == [32, 32]
    assert told.getvalue().startswith("2 keys ")


@pytest.mark.django_db
def test_a_key_of_the_present_secret_is_not_written_again() -> None:
    job = Job.objects.create(name="one", spec={})
    before = bytes(job.key)
    call_command("reseal")
    job.refresh_from_db()
    assert bytes(job.key) == before


@pytest.mark.django_db
def test_keys_of_an_earlier_release_are_sealed_once_and_opened_again() -> None:
    step = import_module("controlplane.jobs.migrations.0002_keys_are_sealed")
    job = Job.objects.create(name="old", spec={}, key=b"k" * 32)
    step.seal_keys(apps, None)
    job.refresh_from_db()
    stored = bytes(job.key)
    assert unseal(stored) == b"k" * 32
    step.seal_keys(apps, None)
    job.refresh_from_db()
    assert bytes(job.key) == stored
    step.unseal_keys(apps, None)
    job.refresh_from_db()
    assert bytes(job.key) == b"k" * 32
