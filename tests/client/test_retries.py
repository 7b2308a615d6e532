"""What is sent again, how often, and what is not: by operations alone, without a network."""

import pytest

from paceline.client import operations
from paceline.client.retries import Patience, patient
from paceline.client.steps import Lost, Operation, Reply, Send, Sleep
from paceline.errors import PacelineError, Refused, Unreachable

JSON = {"content-type": "application/json"}
PROBLEM = {"content-type": "application/problem+json"}
JOB = Reply(200, JSON, b'{"id": 7, "name": "a", "state": "running", "is_over": false}')
SENT, UNSENT = Lost("cut off", was_sent=True), Lost("nobody there", was_sent=False)


def busy(seconds: str = "") -> Reply:
    headers = PROBLEM | ({"retry-after": seconds} if seconds else {})
    return Reply(503, headers, b'{"status": 503, "detail": "the database is busy"}')


def played(
    operation: Operation[object], *answers: Reply | Lost, tries: int = 5
) -> tuple[object, list[Send], list[float]]:
    """What came of it where these answers came; the requests, and the pauses."""
    run, left = patient(operation, Patience(tries=tries), "http://x"), list(answers)
    sent: list[Send] = []
    slept: list[float] = []
    step = next(run)
    while True:
        try:
            if isinstance(step, Sleep):
                slept.append(step.seconds)
                step = run.send(None)
                continue
            sent.append(step)
            answer = left.pop(0)
            step = run.throw(answer) if isinstance(answer, Lost) else run.send(answer)
        except StopIteration as end:
            return end.value, sent, slept
        except (PacelineError, TimeoutError) as error:
            return error, sent, slept


def test_a_submission_is_sent_again_under_one_key() -> None:
    job, sent, slept = played(operations.submit({"name": "a"}), SENT, UNSENT, busy(), JOB)
    assert getattr(job, "id", None) == 7
    assert len({request.headers["Idempotency-Key"] for request in sent}) == 1
    assert (len(sent), len(slept)) == (4, 3)


def test_two_submissions_have_two_keys() -> None:
    keys = [played(operations.submit({"name": "a"}), JOB)[1][0].headers["Idempotency-Key"] for _ in range(2)]
    assert keys[0] != keys[1]


def test_a_request_that_may_have_been_carried_out_is_not_repeated() -> None:
    error, sent, _ = played(operations.pause(7), SENT)
    assert isinstance(error, Unreachable)
    assert str(error) == (
        "http://x: does not answer (cut off); it is unknown whether it took effect: check before you retry"
    )
    assert len(sent) == 1


def test_a_request_that_was_not_sent_or_not_done_is_repeated() -> None:
    job, sent, _ = played(operations.pause(7), UNSENT, busy(), JOB)
    assert getattr(job, "id", None) == 7
    assert len(sent) == 3


@pytest.mark.parametrize("status", [502, 504])
def test_a_request_is_retried_after_a_proxys_error_only_where_that_is_safe(status: int) -> None:
    gone = Reply(status, {"content-type": "text/html"}, b"")
    assert len(played(operations.job(7), gone, JOB)[1]) == 2
    error, sent, _ = played(operations.pause(7), gone)
    assert str(error) == f"http://x: what answers there is no control plane (status {status})"
    assert len(sent) == 1


def test_retry_delays_grow_and_follow_retry_after() -> None:
    _, _, slept = played(operations.job(7), busy(), busy(), busy("6"), JOB)
    assert 0.125 <= slept[0] <= 0.25
    assert 0.25 <= slept[1] <= 0.5
    assert slept[2] == 6.0


def test_patience_ends() -> None:
    error, sent, _ = played(operations.job(7), *[UNSENT] * 3, tries=3)
    assert str(error) == "http://x: does not answer (nobody there)"
    assert len(sent) == 3
    error, _, _ = played(operations.job(7), *[busy()] * 3, tries=3)
    assert isinstance(error, Refused)
    assert error.status == 503


@pytest.mark.parametrize("answer", [Reply(200, JSON, b"[1]"), Reply(200, {"content-type": "text/html"}, b"<html>")])
def test_an_address_without_a_control_plane_is_reported_as_such(answer: Reply) -> None:
    error, _, _ = played(operations.job(7), answer)
    assert isinstance(error, Unreachable)
    assert "no control plane" in str(error)


def test_a_field_that_a_newer_control_plane_adds_is_passed_over() -> None:
    newer = Reply(200, JSON, JOB.content[:-1] + b', "mood": "good", "spec": {"launch": "sideways"}}')
    assert getattr(played(operations.job(7), newer)[0], "id", None) == 7


def test_a_policy_that_someone_changed_meanwhile_is_read_again() -> None:
    body = b'{"batching": {"name": "uniform"}, "barrier": {}, "placement": {}, "data": {}}'
    seen = [Reply(200, JSON | {"etag": f'"{number}"'}, body) for number in (3, 4)]
    changed = Reply(412, PROBLEM, b'{"status": 412, "detail": "changed since"}')
    policy, sent, _ = played(operations.change_policy(7, barrier="ssp"), seen[0], changed, seen[1], seen[1])
    assert getattr(policy, "etag", None) == '"4"'
    assert [request.headers.get("If-Match") for request in sent] == [None, '"3"', None, '"4"']
    error, sent, _ = played(operations.change_policy(7, barrier="ssp", etag='"3"'), changed)
    assert isinstance(error, Refused)
    assert len(sent) == 1


def test_waiting_for_a_job_ends_in_time() -> None:
    error, _, slept = played(operations.wait(7, seconds=1.0, every=0.5), *[JOB] * 3)
    assert isinstance(error, TimeoutError)
    assert str(error) == "job 7: found running after 1 s, expected it to be over by then"
    assert slept == [0.5, 0.5]
