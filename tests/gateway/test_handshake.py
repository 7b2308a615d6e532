"""Processes that connect at the same time are looked up together, and none harms another."""

import asyncio

import pytest
from asgiref.sync import sync_to_async

from controlplane.gateway import close_codes
from controlplane.gateway.connections import Peer
from controlplane.gateway.handshake import Claim, peer_refusal
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import seal
from controlplane.protocol.keys import process_key

KEY = b"k" * 32


def claim(job: int, index: int = 0, key: bytes = KEY) -> Claim:
    instance = f"w{index}.0.1"
    credential = process_key(key, "worker", index, instance).hex()
    return Claim(peer=Peer(job=job, role="worker", index=index, instance=instance), credential=credential)


@pytest.mark.parametrize("number", [2**31, 10**20])
async def test_numbers_that_no_database_has_are_refused_alone(job: Job, number: int) -> None:
    asked = [claim(job.pk), claim(number), claim(job.pk, index=number), claim(job.pk, index=1)]
    refused = await asyncio.gather(*map(peer_refusal, asked))
    assert [each and each.code for each in refused] == [None, close_codes.UNAUTHORISED, close_codes.UNAUTHORISED, None]


async def test_a_job_whose_key_cannot_be_read_harms_no_other(job: Job) -> None:
    broken = await sync_to_async(Job.objects.create)(
        name="other", spec=job.spec, submitted_by_id=job.submitted_by_id, key=seal(KEY)[:-1] + b"?"
    )
    asked = [claim(job.pk), claim(broken.pk), claim(job.pk, index=1), claim(job.pk, key=b"x" * 32)]
    found = await asyncio.gather(*map(peer_refusal, asked), return_exceptions=True)
    assert [found[0], found[2]] == [None, None]
    assert isinstance(found[1], Exception)
    assert getattr(found[3], "code", None) == close_codes.UNAUTHORISED
