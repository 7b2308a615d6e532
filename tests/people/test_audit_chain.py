"""The audit trail as a chain: what was changed or removed is found; it is exported, and copied to a syslog server."""

import json
import socket
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from controlplane.jobs.models import AuditEntry
from controlplane.jobs.services import audit
from controlplane.people import audit_chain, syslog
from controlplane.people.audit_chain import exported, seal_pending, verify
from controlplane.people.configured import SyslogTarget
from controlplane.people.models import AuditCopy, AuditSeal

pytestmark = pytest.mark.django_db


def written(count: int) -> list[AuditEntry]:
    rows = [audit(actor="ada", action="job-stop", subject=f"job {n}", detail={"n": n, "x": 0.5}) for n in range(count)]
    seal_pending()
    return rows


def faults(**options: str) -> list[str]:
    return verify(timezone.now(), **options).faults


def test_entries_as_they_were_written_are_found_so() -> None:
    written(3)
    written(2)
    found = verify(timezone.now())
    assert (found.sealed, found.faults, found.unsealed, found.head[:2]) == (5, [], 0, "5:")


@pytest.mark.parametrize(
    "change", [{"actor": "eve"}, {"action": "job-start"}, {"subject": "job 9"}, {"detail": {}}, {"at": timezone.now()}]
)
def test_a_change_in_the_database_is_found(change: dict[str, Any]) -> None:
    rows = written(4)
    AuditEntry.objects.filter(pk=rows[1].pk).update(**change)
    assert faults() == [f"entry {rows[1].pk} (seal 2) was changed, or the one before it"]


def test_a_removal_in_the_database_is_found() -> None:
    rows = written(4)
    AuditEntry.objects.filter(pk=rows[1].pk).delete()
    assert faults() == [f"entry {rows[1].pk} (seal 2) was removed"]
    AuditSeal.objects.filter(sequence=2).delete()
    assert faults()[0] == "seals 2 to 2 are missing"


def test_an_end_that_was_cut_off_is_found_by_a_noted_head() -> None:
    rows = written(4)
    head = verify(timezone.now()).head
    AuditEntry.objects.filter(pk=rows[3].pk).delete()
    AuditSeal.objects.filter(sequence=4).delete()
    assert faults() == []
    assert faults(noted=head) == ["seal 4 was noted and is missing: the end was cut off"]
    written(1)
    assert faults(noted=head) == [f"seal 4 is not the one that was noted: {head}"]


def test_an_entry_that_was_put_in_by_hand_is_found() -> None:
    written(2)
    row = AuditEntry.objects.create(actor="eve", action="login", subject="user ada")
    AuditEntry.objects.filter(pk=row.pk).update(at=timezone.now() - timedelta(hours=1))
    assert len(faults()) == 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 5), bit=st.integers(0, 63))
def test_no_seal_can_be_made_without_the_key(at: int, bit: int) -> None:
    AuditSeal.objects.all().delete()
    AuditEntry.objects.all().delete()
    written(6)
    row = AuditSeal.objects.get(sequence=at + 1)
    digit = format(int(row.seal[bit], 16) ^ 1, "x")
    AuditSeal.objects.filter(pk=row.pk).update(seal=row.seal[:bit] + digit + row.seal[bit + 1 :])
    assert faults()


def test_two_that_seal_at_once_do_not_fork_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    written(1)
    last = AuditSeal.objects.get()
    audit(actor="ada", action="login", subject="user ada")
    AuditSeal.objects.create(sequence=2, entry=last.entry + 50, seal="0" * 64, key=last.key)
    monkeypatch.setattr(audit_chain.AuditSeal.objects, "order_by", lambda *_: AuditSeal.objects.filter(sequence=1))
    with pytest.raises(IntegrityError):
        seal_pending()


def test_an_entry_that_was_committed_late_is_sealed_later() -> None:
    rows = written(3)
    AuditEntry.objects.filter(pk=rows[0].pk).delete()
    AuditSeal.objects.all().delete()
    seal_pending()
    AuditEntry.objects.create(pk=rows[0].pk, actor="ada", action="login", subject="user ada")
    assert (seal_pending(), faults()) == (1, [])


def test_a_changed_secret_key_is_named(settings: Any) -> None:
    written(2)
    settings.SECRET_KEY, before = "n" * 50, settings.SECRET_KEY
    assert "add it to SECRET_KEY_FALLBACKS" in faults()[0]
    settings.SECRET_KEY_FALLBACKS = [before]
    written(1)
    assert faults() == []


def test_the_command_exports_and_verifies() -> None:
    rows = written(3)
    out = StringIO()
    call_command("audit", "--since", "1", stdout=out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["sequence"], line["subject"], line["actor"]) for line in lines] == [
        *((2, "job 1", "ada"), (3, "job 2", "ada")),
    ]
    call_command("audit", "verify", stdout=out)
    AuditEntry.objects.filter(pk=rows[0].pk).update(actor="eve")
    with pytest.raises(CommandError, match="not as it was written"):
        call_command("audit", "verify", stdout=out)


def test_an_export_in_pages_continues_behind_removed_entries() -> None:
    rows = written(5)
    AuditEntry.objects.filter(pk__in=[row.pk for row in rows[1:4]]).delete()
    assert [each["sequence"] for each in exported(0, 2)] == [1, 5]
    assert [each["sequence"] for each in exported(1, 2)] == [5]


def test_no_one_changes_an_entry_through_the_product(client: Client) -> None:
    row = written(1)[0]
    root = User.objects.create_superuser("root")
    client.force_login(root)
    for action in ("change", "delete"):
        reply = client.post(f"/admin/jobs/auditentry/{row.pk}/{action}/", {"actor": "eve", "post": "yes"})
        assert reply.status_code == 403
    assert client.get("/admin/people/auditseal/").status_code == 404
    api = APIClient()
    api.force_authenticate(root)
    assert {api.generic(method, "/api/v1/audit").status_code for method in ("POST", "PUT", "PATCH", "DELETE")} == {405}
    assert (AuditEntry.objects.get(pk=row.pk).actor, faults()) == ("ada", [])


def test_rest_continues_where_it_was_left() -> None:
    written(5)
    api = APIClient()
    api.force_authenticate(User.objects.create_superuser("root"))
    reply = api.get("/api/v1/audit", {"since": 1, "limit": 2})
    assert [json.loads(line)["sequence"] for line in reply.content.splitlines()] == [2, 3]
    assert reply["Content-Type"] == "application/x-ndjson"
    assert api.get("/api/v1/audit", {"since": 5}).content == b""
    assert api.get("/api/v1/audit", {"since": "x"}).status_code == 400


def test_a_message_follows_rfc_5424() -> None:
    written(1)
    message = syslog.message_of(next(exported(0)))
    head, _, text = message.partition(b"\xef\xbb\xbf")
    priority, at, _host, app, process, kind, data = head.decode().split()
    assert (priority, at[-1], app, process.isdecimal(), kind, data) == ("<109>1", "Z", "paceline", True, "audit", "-")
    assert json.loads(text)["actor"] == "ada"


def test_a_detail_that_no_server_takes_is_left_out() -> None:
    audit(actor="ada", action="job-submit", subject="job 1", detail={"spec": "ü" * 100_000})
    seal_pending()
    message = syslog.message_of(next(exported(0)))
    assert len(message) < syslog.MOST_BYTES
    assert json.loads(message.partition(b"\xef\xbb\xbf")[2])["detail"]["omitted_bytes"] > 200_000


def received(server: socket.socket, into: list[bytes]) -> None:
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(65_536):
            into.append(data)


def test_new_entries_are_copied_over_tcp_once_the_server_is_there(settings: Any) -> None:
    written(3)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    settings.AUDIT_SYSLOG = SyslogTarget(transport="tcp", host="127.0.0.1", port=port)
    assert (syslog.copy_pending(), AuditCopy.objects.get().sequence) == (0, 0)
    with closing(socket.create_server(("127.0.0.1", port))) as server:
        got: list[bytes] = []
        reader = Thread(target=received, args=(server, got))
        reader.start()
        assert syslog.copy_pending() == 3
        reader.join(10)
    size, _, rest = b"".join(got).partition(b" ")
    assert rest[: int(size)].startswith(b"<109>1 ")
    assert b"".join(got).count(b"<109>1 ") == 3
    assert syslog.copy_pending() == 0


@pytest.mark.parametrize("transport", ["udp", "unix"])
def test_new_entries_are_copied_as_datagrams(settings: Any, tmp_path: Path, transport: str) -> None:
    written(2)
    family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as server:
        server.settimeout(10)
        server.bind(str(tmp_path / "log") if transport == "unix" else ("127.0.0.1", 0))
        host, port = (str(tmp_path / "log"), 0) if transport == "unix" else server.getsockname()
        settings.AUDIT_SYSLOG = SyslogTarget(transport=transport, host=host, port=port)
        assert syslog.copy_pending() == 2
        assert [server.recv(65_536)[:7] for _ in range(2)] == [b"<109>1 "] * 2


def test_nothing_is_copied_where_nothing_is_configured() -> None:
    written(1)
    assert (syslog.copy_pending(), AuditCopy.objects.count()) == (0, 0)
