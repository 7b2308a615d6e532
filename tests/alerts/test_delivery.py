"""Messages arrive: signed, with a key, tried again after failures, in order; over real HTTP, and by mail."""

import socket
import threading
import uuid
from datetime import datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core import mail as outbox
from django.core.management import call_command
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts import delivery, mail, webhook
from controlplane.alerts.delivery import MOST_ATTEMPTS, deliver_due, failing_targets, wait_s
from controlplane.alerts.messages import Message, body, subject
from controlplane.alerts.models import Alert, Delivery, Target
from controlplane.alerts.services import address_of, delivery_resend
from controlplane.alerts.signing import TOLERANCE_S, verified
from controlplane.alerts.webhook import DeliveryFailed
from controlplane.jobs.models import AuditEntry
from tests.alerts import rows
from tests.alerts.mail_server import mail_server
from tests.alerts.receiver import Receiver
from tests.alerts.rows import SECRET, deliveries

pytestmark = pytest.mark.django_db

MESSAGE = Message(
    notice="firing",
    rule="lost <!channel> & co",
    kind="worker-lost",
    severity="critical",
    summary="w1 of job 7 (nightly) was lost",
    url="http://127.0.0.1:8000/jobs/7/?tab=decisions",
    job=7,
    labels={"job": "nightly"},
)


class Clock:
    """A time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = timezone.now()

    def __call__(self) -> datetime:
        return self.now

    def on(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def queue(target: Target, *, notice: str = "firing", alert: Alert | None = None, **more: Any) -> Delivery:
    message = msgspec.to_builtins(msgspec.structs.replace(MESSAGE, notice=notice))
    at = timezone.now() - timedelta(seconds=1)
    return Delivery.objects.create(
        target=target, alert=alert, notice=notice, message=message, created_at=at, next_at=at, **more
    )


def firing_alert() -> Alert:
    now = timezone.now()
    fields = {"rule_name": "one", "kind": "worker-lost", "severity": "critical", "key": "job-7-w1"}
    return Alert.objects.create(stage="firing", since=now, seen_at=now, fired_at=now, summary="s", **fields)


def test_a_webhook_is_signed_and_has_the_key_of_its_delivery(receiver: Receiver, clock: Clock) -> None:
    sent = queue(rows.webhook(receiver.url))
    assert deliver_due(clock) == 1
    (got,) = receiver.received
    assert (got.path, got.headers["Idempotency-Key"]) == ("/hooks/T0/secret-path", str(sent.key))
    assert got.headers["Host"] == receiver.url.split("/")[2]
    assert verified(SECRET, got.body, got.headers, timezone.now().timestamp())
    assert not verified("another secret, as long as it", got.body, got.headers, timezone.now().timestamp())
    other = got.headers | {"Idempotency-Key": str(uuid.uuid4())}
    assert not verified(SECRET, got.body, other, timezone.now().timestamp())
    assert not verified(SECRET, got.body + b" ", got.headers, timezone.now().timestamp())
    assert not verified(SECRET, got.body, got.headers, timezone.now().timestamp() + TOLERANCE_S + 5)
    assert got.document == {
        "version": 1,
        "text": f"Firing (critical): lost <!channel> & co: {MESSAGE.summary} {MESSAGE.url}",
        **msgspec.to_builtins(MESSAGE),
    }
    assert deliveries() == [("firing", "delivered", 1)]


def test_a_failure_is_tried_again_with_the_same_key_and_body(receiver: Receiver, clock: Clock) -> None:
    row = queue(rows.webhook(receiver.url))
    receiver.answer(503, b"try later\n")
    receiver.answer(429, Retry_After="100")
    deliver_due(clock, jitter=lambda: 1.0)
    row.refresh_from_db()
    assert (row.state, row.attempts, row.error) == ("queued", 1, "status 503: try later")
    assert row.next_at == clock.now + timedelta(seconds=5)
    assert deliver_due(clock) == 0, "it is not due yet"
    clock.on(5)
    deliver_due(clock, jitter=lambda: 1.0)
    row.refresh_from_db()
    assert row.next_at == clock.now + timedelta(seconds=100), "as the receiver asked"
    clock.on(100)
    assert deliver_due(clock) == 1
    assert deliveries() == [("firing", "delivered", 3)]
    assert len({(got.headers["Idempotency-Key"], got.body) for got in receiver.received}) == 1
    assert len(receiver.unique) == 1


@pytest.mark.parametrize(("status", "why"), [(404, "status 404"), (302, "redirects are not followed")])
def test_what_cannot_help_is_not_tried_again(receiver: Receiver, clock: Clock, status: int, why: str) -> None:
    queue(rows.webhook(receiver.url))
    receiver.answer(status, Location="http://169.254.169.254/latest/meta-data")
    deliver_due(clock)
    assert deliveries() == [("firing", "failed", 1)]
    assert why in failing_targets()["hook"]
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "Cannot POST /hooks/T0/secret-path",
        "no hook secret-path here",
        '{"path": "\\/hooks\\/T0\\/secret-path"}',
        "GET %2Fhooks%2FT0%2Fsecret-path?token=a%26b%20c%2Bd9",
        "token a&b c+d9 is unknown",
        "token a&amp;b c+d9 is unknown",
        "SECRET-PATH",
        "x" * 295 + "secret-path",
        "secret-path" * 2_000,
        ("y" * 9 + "secret-path ") * 2_000,
    ],
)
def test_what_a_receiver_echoes_of_its_url_is_not_kept(receiver: Receiver, clock: Clock, answer: str) -> None:
    queue(rows.webhook(f"{receiver.url}?token=a%26b%20c%2Bd9"))
    receiver.answer(404, answer.encode())
    deliver_due(clock)
    error = Delivery.objects.get().error
    assert error.startswith("status 404: ")
    assert len(error) <= 320
    shown = error.lower()
    assert not [each for each in ("secret", "sec…", "hooks", "c+d9", "c%2bd9") if each in shown]


def test_an_unexpected_failure_does_not_show_the_url(
    receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*, url: str, **_: Any) -> None:
        raise RuntimeError(f"cannot use {url}")

    monkeypatch.setattr(webhook, "send", broken)
    queue(rows.webhook(receiver.url))
    deliver_due(clock)
    assert Delivery.objects.get().error == f"RuntimeError: cannot use {receiver.url.partition('/hooks')[0]}…"


def test_a_receiver_that_is_away_is_given_up_after_all_attempts_and_is_seen(clock: Clock) -> None:
    row = queue(rows.webhook("http://127.0.0.1:9/x"))
    for _ in range(MOST_ATTEMPTS):
        deliver_due(clock)
        clock.on(3_600)
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("failed", MOST_ATTEMPTS)
    assert "refused" in failing_targets()["hook"].lower()
    assert "127.0.0.1" in row.error


def test_what_a_target_missed_is_reported_when_it_works_again(receiver: Receiver, clock: Clock) -> None:
    target = rows.webhook(receiver.url)
    missed = queue(target, alert=firing_alert(), state="failed", attempts=10, error="status 404", ended_at=clock.now)
    over = queue(target, state="failed", attempts=10, error="status 404", ended_at=clock.now)
    queue(target, notice="test")
    deliver_due(clock)
    deliver_due(clock)
    assert {got.headers["Idempotency-Key"] for got in receiver.received} >= {str(missed.key)}
    over.refresh_from_db()
    assert (over.state, failing_targets()) == ("failed", {})


def test_a_failed_delivery_is_sent_again_by_hand(receiver: Receiver, clock: Clock) -> None:
    row = queue(rows.webhook(receiver.url), state="failed", attempts=10, error="status 404")
    assert delivery_resend(row=row, actor="ada")
    assert not delivery_resend(row=row, actor="ada"), "it is queued already"
    clock.on(1)
    assert deliver_due(clock) == 1
    assert AuditEntry.objects.get(action="alert-resend").actor == "ada"


def test_resolved_is_not_sent_before_firing(receiver: Receiver, clock: Clock) -> None:
    target, alert = rows.webhook(receiver.url), firing_alert()
    queue(target, alert=alert)
    queue(target, alert=alert, notice="resolved")
    receiver.answer(500)
    deliver_due(clock)
    clock.on(10)
    for _ in range(2):
        deliver_due(clock)
    assert [got.document["notice"] for got in receiver.received] == ["firing", "firing", "resolved"]


def test_resolved_is_not_sent_if_firing_was_never_delivered(receiver: Receiver, clock: Clock) -> None:
    target, alert = rows.webhook(receiver.url), firing_alert()
    beginning = queue(target, alert=alert)
    end = queue(target, alert=alert, notice="resolved")
    Alert.objects.update(stage="resolved")
    receiver.answer(404)
    for _ in range(3):
        deliver_due(clock)
    assert deliveries() == [("firing", "failed", 1), ("resolved", "failed", 0)]
    end.refresh_from_db()
    assert end.error == "not sent: the target never received the firing message"
    assert failing_targets() == {"hook": "status 404"}
    queue(target, notice="test")
    deliver_due(clock)
    assert failing_targets() == {}
    for row in (beginning, end):
        clock.on(1)
        delivery_resend(row=row, actor="ada")
        deliver_due(clock)
    assert deliveries()[:2] == [("firing", "delivered", 1), ("resolved", "delivered", 1)]


def test_resolved_is_sent_if_a_repetition_was_delivered(receiver: Receiver, clock: Clock) -> None:
    target, alert = rows.webhook(receiver.url), firing_alert()
    for notice in ("firing", "again", "resolved"):
        queue(target, alert=alert, notice=notice)
    receiver.answer(404)
    for _ in range(3):
        deliver_due(clock)
    assert [state for _, state, _ in deliveries()] == ["failed", "delivered", "delivered"]


def test_only_the_newest_message_of_an_alert_is_reported_when_a_target_works_again(
    receiver: Receiver, clock: Clock
) -> None:
    target, up_to_date, behind = rows.webhook(receiver.url), firing_alert(), firing_alert()
    given_up: dict[str, Any] = {"state": "failed", "attempts": MOST_ATTEMPTS, "ended_at": clock.now}
    queue(target, alert=up_to_date, **given_up)
    queue(target, alert=up_to_date, notice="again")
    queue(target, alert=behind, **given_up)
    queue(target, alert=behind, notice="again", **given_up)
    for _ in range(3):
        deliver_due(clock)
    assert [state for _, state, _ in deliveries()] == ["failed", "delivered", "failed", "delivered"]
    assert [got.document["notice"] for got in receiver.received] == ["again", "again"]


def test_what_a_target_refused_for_good_is_not_sent_again_when_it_works(receiver: Receiver, clock: Clock) -> None:
    target = rows.webhook(receiver.url)
    queue(target, alert=firing_alert())
    queue(target, notice="test")
    receiver.answer(400)
    for _ in range(3):
        deliver_due(clock)
    assert deliveries() == [("firing", "failed", 1), ("test", "delivered", 1)]


def test_a_target_that_hangs_holds_up_no_other(
    receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(rows.webhook("http://127.0.0.1:9/x", name="hangs"))
    queue(rows.webhook(receiver.url))
    arrived, in_time, send = threading.Event(), [], webhook.send

    def hanging(**arguments: Any) -> None:
        if arguments["url"] == receiver.url:
            send(**arguments)
            arrived.set()
            return
        in_time.append(arrived.wait(10))
        raise DeliveryFailed("no answer")

    monkeypatch.setattr(webhook, "send", hanging)
    assert deliver_due(clock) == 1
    assert in_time == [True]
    assert deliveries() == [("firing", "queued", 1), ("firing", "delivered", 1)]


def test_a_target_that_does_not_answer_has_failed_for_now(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        queue(rows.webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/x"))
        deliver_due(clock)
    row = Delivery.objects.get()
    assert (row.state, row.attempts, "timed out" in row.error) == ("queued", 1, True)


def test_what_was_not_begun_is_no_attempt(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(webhook, "send", lambda **_: released.wait(30))
    monkeypatch.setattr(delivery, "DEADLINE_S", 0.1)
    away = rows.webhook("http://127.0.0.1:9/x")
    for _ in range(12):
        queue(away)
    try:
        deliver_due(clock)
    finally:
        released.set()
    assert sorted(deliveries()) == [("firing", "queued", 0)] * 11 + [("firing", "queued", 1)]


def test_dead_targets_with_long_queues_starve_no_other(
    receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        dead = rows.webhook("http://127.0.0.1:9/x", name=f"dead{number}")
        for _ in range(20):
            queue(dead)
    released, send = threading.Event(), webhook.send
    monkeypatch.setattr(
        webhook, "send", lambda **arguments: released.wait(30) if ":9/" in arguments["url"] else send(**arguments)
    )
    monkeypatch.setattr(delivery, "DEADLINE_S", 3.0)
    queue(rows.webhook(receiver.url))
    try:
        assert deliver_due(clock) == 1
    finally:
        released.set()
    assert len(receiver.received) == 1


def test_a_target_that_is_away_is_tried_once_in_a_batch(clock: Clock) -> None:
    away = rows.webhook("http://127.0.0.1:9/x")
    for _ in range(3):
        queue(away)
    deliver_due(clock)
    assert deliveries() == [("firing", "queued", 1), ("firing", "queued", 0), ("firing", "queued", 0)]


def test_a_target_that_is_removed_meanwhile_spoils_no_other_delivery(
    receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = rows.webhook(receiver.url, name="gone")
    queue(gone)
    queue(rows.webhook(receiver.url))
    attempted = delivery._attempted

    def removing(attempts: Any) -> Any:
        done = attempted(attempts)
        gone.delete()
        return done

    monkeypatch.setattr(delivery, "_attempted", removing)
    deliver_due(clock)
    assert deliveries() == [("firing", "delivered", 1)]
    assert deliver_due(clock) == 0


@pytest.mark.parametrize(
    ("host", "address"),
    [("metadata.internal", "169.254.169.254"), ("six.internal", "fe80::1"), ("mapped.internal", "::ffff:169.254.0.1")],
)
def test_nothing_is_sent_to_a_link_local_address_whatever_its_name(
    host: str, address: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(rows.webhook(f"http://{host}/x"))
    monkeypatch.setattr(webhook.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 80))])
    deliver_due(clock)
    assert deliveries() == [("firing", "failed", 1)]
    assert "not link-local" in failing_targets()["hook"]


def test_the_address_that_was_checked_is_the_one_connected_to(
    receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that means another address by then changes nothing."""
    port = receiver.url.split(":")[2].split("/")[0]
    queue(rows.webhook(f"http://hooks.internal:{port}/x"))
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]
    monkeypatch.setattr(webhook.socket, "getaddrinfo", lambda *_, **__: found)
    assert deliver_due(clock) == 1
    assert receiver.received[0].headers["Host"] == f"hooks.internal:{port}"


def test_slack_s_body_has_text_and_nothing_that_it_reads_as_markup() -> None:
    found = msgspec.json.decode(body(MESSAGE, "slack"))
    assert found.keys() == {"text", "attachments"}
    assert found["text"].startswith("Firing (critical): lost &lt;!channel&gt; &amp; co: ")
    assert found["attachments"][0]["title_link"] == MESSAGE.url
    assert msgspec.json.decode(body(MESSAGE, "paceline"))["text"]


def test_a_mail_reports_it_on_one_line_and_whole(clock: Clock) -> None:
    row = queue(rows.mailbox("ada@example.org", "eve@example.org"))
    assert deliver_due(clock) == 1
    sent, other = outbox.outbox
    assert (sent.to, other.to) == (["ada@example.org"], ["eve@example.org"])
    assert sent.subject == "[Paceline] Firing (critical): lost <!channel> & co"
    assert sent.body.splitlines()[0] == MESSAGE.summary
    assert f"Details: {MESSAGE.url}" in sent.body
    assert str(row.key) in sent.extra_headers["Message-ID"]


def test_an_address_that_is_refused_is_a_failure_and_the_others_get_no_second_mail(clock: Clock, settings: Any) -> None:
    with mail_server() as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        server.refusals = {"eve@example.org": ["450 greylisted"], "no@example.org": ["550 no such user"] * 2}
        row = queue(rows.mailbox("ada@example.org", "eve@example.org", "no@example.org"))
        assert deliver_due(clock) == 0
        row.refresh_from_db()
        assert (row.state, row.arrived, server.came) == ("queued", ["ada@example.org"], ["ada@example.org"])
        assert "eve@example.org: 450 greylisted; no@example.org: 550 no such user" in row.error
        clock.on(5)
        deliver_due(clock)
        row.refresh_from_db()
        assert (row.state, server.came) == ("failed", ["ada@example.org", "eve@example.org"])
        assert row.error == "the mail server rejected no@example.org: 550 no such user"
        clock.on(1)
        delivery_resend(row=row, actor="ada")
        assert deliver_due(clock) == 1
        assert server.came == ["ada@example.org", "eve@example.org", "no@example.org"]


def test_a_mail_that_takes_too_long_is_not_repeated_to_those_that_have_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, asked = threading.Event(), []

    def slow(addresses: list[str], *, arrived: set[str], **_: Any) -> None:
        asked.append([each for each in addresses if each not in arrived])
        arrived.add("ada@example.org")
        released.wait(30)

    monkeypatch.setattr(mail, "send", slow)
    monkeypatch.setattr(delivery, "DEADLINE_S", 0.1)
    queue(rows.mailbox("ada@example.org", "eve@example.org"))
    try:
        for _ in range(2):
            deliver_due(clock)
            clock.on(60)
    finally:
        released.set()
    assert asked == [["ada@example.org", "eve@example.org"], ["eve@example.org"]]


def test_a_mail_is_a_file_where_that_is_configured(clock: Clock, settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "django.core.mail.backends.filebased.EmailBackend", str(tmp_path)
    queue(rows.mailbox("ada@example.org"))
    deliver_due(clock)
    (written,) = tmp_path.iterdir()
    assert "Subject: [Paceline] Firing (critical)" in written.read_text()


def test_without_a_mail_server_the_delivery_reports_it(clock: Clock, settings: Any) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = "django.core.mail.backends.smtp.EmailBackend", ""
    queue(rows.mailbox("ada@example.org"))
    deliver_due(clock)
    assert Delivery.objects.get().error.startswith("no mail server is configured: set EMAIL_URL")


def test_a_name_with_line_breaks_makes_no_header(clock: Clock) -> None:
    odd = msgspec.structs.replace(MESSAGE, rule="one\r\nBcc: eve@example.org")
    assert "\n" not in subject(odd)
    mail = EmailMessage()
    mail["Subject"] = subject(odd)
    assert mail["Bcc"] is None


def test_a_target_s_address_and_secret_are_encrypted(receiver: Receiver, settings: Any, clock: Clock) -> None:
    row = rows.webhook(receiver.url)
    assert b"secret-path" not in bytes(row.sealed)
    assert SECRET.encode() not in bytes(row.sealed)
    assert address_of(row).secret == SECRET
    assert "secret-path" not in str(list(AuditEntry.objects.values_list("detail", flat=True)))
    queue(row)
    settings.SECRET_KEY = "n" * 60
    deliver_due(clock)
    assert "SECRET_KEY_FALLBACKS" in failing_targets()["hook"]


def test_targets_are_carried_over_to_another_secret_key(settings: Any) -> None:
    row, old = rows.webhook("https://hooks.example.org/x"), settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 60, [old]
    call_command("reseal")
    settings.SECRET_KEY_FALLBACKS = []
    row.refresh_from_db()
    assert address_of(row).secret == SECRET


@given(attempts=st.integers(1, 60), jitter=st.floats(0, 1))
def test_waits_double_up_to_an_hour(attempts: int, jitter: float) -> None:
    assert 2.5 <= wait_s(attempts, jitter) <= 3_600
    assert wait_s(attempts + 1, jitter) >= wait_s(attempts, jitter)
