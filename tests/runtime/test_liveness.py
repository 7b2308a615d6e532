"""Which processes of this machine have ended, as their names say."""

import os
import re
import socket
import subprocess
import sys

from controlplane.runtime import liveness, names
from controlplane.runtime.redis import Client


def test_a_process_is_gone_once_it_has_ended_and_not_before() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        place = liveness.where(child.pid)
        assert not liveness.is_gone_from_here(place)
        child.communicate(b"\n")
    assert liveness.is_gone_from_here(place)
    assert not liveness.is_gone_from_here(liveness.where())


def test_a_number_that_was_given_again_is_another_process() -> None:
    mine = liveness.where()
    start = mine.rpartition("~")[2]
    earlier = mine.removesuffix(start) + "1"
    assert liveness.is_gone_from_here(earlier)
    assert liveness.shown(earlier) == liveness.shown(mine) == f"{socket.gethostname()}:{os.getpid()}"


def test_a_container_with_the_same_host_name_cannot_be_looked_into() -> None:
    """Its processes have numbers of their own, which say nothing here."""
    ended = liveness.where(999_999_999)
    assert liveness.is_gone_from_here(ended)
    other = re.sub(r"~\w+~", "~another0~", ended)
    assert not liveness.is_gone_from_here(other)
    assert not liveness.is_gone_from_here(f"{socket.gethostname()}:999999999")  # of an earlier release
    assert not liveness.is_gone_from_here("")


def test_a_process_knows_whether_there_are_others_of_its_kind(client: Client) -> None:
    client.set(names.writer("ab12"), "elsewhere")
    try:
        liveness.begin(client)
        assert not liveness.has_others(client)
        client.set(names.process("cd34"), "elsewhere")
        assert liveness.has_others(client)
    finally:
        liveness.end()
