"""What the hostile bench sends, and what it makes of what it sees; the bench itself runs for minutes."""

import io
import socket
import zipfile
from contextlib import closing

import msgspec
import pytest

from benchmarks.security import attacks, malicious_agent
from benchmarks.security.context import AttackContext
from benchmarks.security.hostile import PATIENCE_S, Phase, Result, probing, table
from controlplane.protocol.codec import BadFrame, from_agent, from_server, from_worker


def result(rate: float = 10.0, slowest: float = 0.1, after: float = 105.0) -> Result:
    quiet = Phase(name="no attack", seconds=10.0, iterations_per_s=10.0, healthz_s=[0.01])
    war = Phase(name="zips", seconds=6.0, iterations_per_s=rate, healthz_s=[0.01, slowest], answers={"HTTP 400": 2})
    return Result(phases=[quiet, war], memory_mb={"web": (100.0, after)}, lost=[])


def test_a_run_in_which_nothing_gives_way_has_no_failures() -> None:
    assert result().failures == []


def test_each_bar_that_is_missed_is_named_with_its_attack() -> None:
    assert result(rate=7.0, slowest=0.7, after=140.0).failures == [
        "zips: training at 0.70 of its rate, expected 0.8",
        "zips: the slowest /healthz took 0.70 s, expected 0.5 s",
        "web grew from 100 to 140 MB",
    ]


def test_training_that_stalled_before_the_attacks_is_no_baseline() -> None:
    quiet = Phase(name="no attack", seconds=10.0, iterations_per_s=0.0, healthz_s=[0.01])
    assert Result(phases=[quiet], memory_mb={}, lost=[]).failures == [
        "nothing was trained before the attacks: there is no rate to compare with"
    ]


def test_the_table_reports_rate_answers_and_memory() -> None:
    lines = table(msgspec.to_builtins(result())).splitlines()
    assert lines[2].split() == ["zips", "10.0", "1.00", *["100", "ms", "100", "ms", "100", "ms"]]
    assert lines[3:] == ["zips: 2 x HTTP 400", "memory in MB: web 100 -> 105"]


def test_the_zip_of_nothing_is_one_with_all_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "ENTRIES", 70_000)
    with zipfile.ZipFile(io.BytesIO(attacks._empty_files())) as archive:
        assert len(archive.namelist()) == 70_000


def test_every_poison_is_one_that_the_codec_refuses() -> None:
    for codec, poisons in (
        (from_server, malicious_agent._POISON_OF_SERVERS),
        (from_worker, malicious_agent._POISON_OF_WORKERS),
    ):
        for message, changes in poisons:
            codec.decode(malicious_agent._frame(message, {}))
            with pytest.raises(BadFrame):
                codec.decode(malicious_agent._frame(message, changes))


def test_every_offer_that_is_too_much_is_refused() -> None:
    for changes in malicious_agent._TOO_MUCH:
        with pytest.raises(BadFrame):
            from_agent.decode(malicious_agent._frame(malicious_agent.hello(1, 1), changes))


def test_anonymous_connections_are_as_many_as_requested_and_count_who_ended_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attacks, "ANONYMOUS", 20)
    monkeypatch.setattr(attacks, "TURN_S", 0.01)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        context = AttackContext(
            url="http://127.0.0.1:1",
            credential="",
            victims=[],
            data_ports=[listening.getsockname()[1]],
            number=1,
            own_job=1,
            seconds=0.1,
        )
        found = attacks.anonymous_at_servers(context)
    assert found.answers["opened"] == found.answers["held at the end"] == 20


def test_what_does_not_answer_counts_as_long_as_one_waits() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    with probing(port) as probes:
        while not probes:
            pass
    assert probes[0][1] == PATIENCE_S
