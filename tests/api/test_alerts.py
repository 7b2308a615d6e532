"""Alerts over REST and the command: one validation, one document."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.test import APIClient

from controlplane.alerts.kinds import KINDS
from controlplane.alerts.models import Alert, Delivery, Rule, Silence, Target
from controlplane.alerts.rules import DEFAULT_RULES, SEVERITIES, parse_rule, parse_rules, rule_document, rules_document
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.sealing import unseal
from controlplane.protocol.parts import SpecError
from tests.alerts.rows import saved_rule, webhook
from tests.api.conftest import refused

pytestmark = pytest.mark.django_db

HOOK = {"name": "oncall", "kind": "webhook", "url": "https://hooks.example.org/T0/secret-path"}
WAITS = {"name": "waits", "kind": "waiting", "parameters": {"share": 0.4}, "for_s": 300, "severity": "critical"}


def put_yaml(client: APIClient, text: str) -> Any:
    return client.generic("PUT", "/api/v1/alerts/document", text, content_type="application/yaml")


def test_a_rule_is_made_changed_and_removed(admin: APIClient) -> None:
    made = admin.post("/api/v1/alerts/rules", WAITS, format="json").json()
    assert {name: made[name] for name in WAITS} == WAITS
    assert (made["clear_s"], made["repeat_s"], made["targets"]) == (60.0, 14_400.0, [])
    path = f"/api/v1/alerts/rules/{made['id']}"
    changed = admin.put(path, WAITS | {"for_s": 60}, format="json").json()
    assert (changed["for_s"], changed["since"] > made["since"]) == (60.0, True)
    assert admin.delete(path).status_code == 204
    assert list(AuditEntry.objects.values_list("action", flat=True)) == [
        f"alert-rule-{what}" for what in ("create", "change", "remove")
    ]


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"kind": "rain"}, "kind", "one of job-stalled, worker-lost"),
        ({"severity": "bad"}, "severity", "one of critical, info, warning"),
        ({"parameters": {"share": 1.5}}, "parameters.share", "a number from 0.01 to 1"),
        ({"parameters": {"part": 0.5}}, "parameters.part", "one of share"),
        ({"for": "5m"}, "for", "one of the fields name, kind"),
        ({"for_s": -1}, "for_s", "`float` >= 0.0"),
        ({"kind": "job-failed", "parameters": {}}, "for_s", "0: job-failed is an event without a duration"),
        ({"repeat_s": 5}, "repeat_s", "0, or at least 60 s"),
        ({"targets": ["nobody"]}, "targets", "existing targets: there are none yet"),
        ({"name": "a\nb"}, "name", "text on one line"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_alike_everywhere(
    admin: APIClient, tmp_path: Path, change: dict[str, Any], field: str, expected: str
) -> None:
    document = WAITS | change
    one = refused(admin.post("/api/v1/alerts/rules", document, format="json"))
    assert (one["status"], one["field"]) == (400, field)
    assert expected in one["expected"]
    text = yaml.safe_dump({"rules": [document]})
    many = refused(put_yaml(admin, text))
    assert (many["status"], many["field"]) == (400, f"rules[0].{field}")
    assert expected in many["expected"]
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(CommandError) as error:
        call_command("alerts", "import", str(tmp_path / "rules.yaml"))
    assert f"rules[0].{field}: " in str(error.value)
    assert Rule.objects.count() == 0


def test_an_export_is_imported_again_as_it_is(admin: APIClient, viewer: APIClient) -> None:
    admin.post("/api/v1/alerts/targets", HOOK, format="json")
    for rule in (WAITS | {"targets": ["oncall"], "where": {"gpu": "a100"}}, {"name": "lost", "kind": "worker-lost"}):
        assert admin.post("/api/v1/alerts/rules", rule, format="json").status_code == 201
    exported = viewer.get("/api/v1/alerts/document")
    assert exported["Content-Type"] == "application/yaml"
    text = exported.content.decode()
    assert "secret-path" not in text
    assert put_yaml(admin, text).json() == {"created": [], "changed": [], "removed": [], "same": ["lost", "waits"]}
    document = yaml.safe_load(text)
    document["rules"] = [document["rules"][1] | {"for_s": 5}, {"name": "disk", "kind": "disk-filling"}]
    assert put_yaml(admin, yaml.safe_dump(document)).json() == {
        "created": ["disk"],
        "changed": ["waits"],
        "removed": ["lost"],
        "same": [],
    }


def test_the_command_writes_checks_reads_and_lists(tmp_path: Path) -> None:
    saved_rule("waiting", name="waits")
    file = tmp_path / "rules.yaml"
    call_command("alerts", "export", str(file))
    told = StringIO()
    call_command("alerts", "check", str(file), stdout=told)
    assert told.getvalue() == "1 rules are valid\n"
    Rule.objects.all().delete()
    told = StringIO()
    call_command("alerts", "import", str(file), "--json", stdout=told)
    assert json.loads(told.getvalue()) == {"created": ["waits"], "changed": [], "removed": [], "same": []}
    assert "(command line)" in AuditEntry.objects.latest("id").actor
    now = timezone.now()
    fields = {"rule_name": "waits", "kind": "waiting", "severity": "warning", "key": "k", "summary": "w0 waits"}
    Alert.objects.create(stage="firing", since=now, seen_at=now, fired_at=now, silenced=True, **fields)
    told = StringIO()
    call_command("alerts", "list", stdout=told)
    assert told.getvalue() == "1 firing, 0 failed deliveries\nwarning  waits  w0 waits  (silenced)\n"


def test_the_default_rules_can_be_imported(tmp_path: Path) -> None:
    call_command("alerts", "defaults", str(tmp_path / "rules.yaml"))
    call_command("alerts", "import", str(tmp_path / "rules.yaml"))
    assert [row.document for row in Rule.objects.order_by("pk")] == list(DEFAULT_RULES)
    assert {rule.kind for rule in DEFAULT_RULES} == set(KINDS) - {"job-done"}


@pytest.mark.parametrize("do", ["check", "import"])
def test_the_command_reports_what_is_wrong_with_a_file(do: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="expected the YAML file of rules"):
        call_command("alerts", do)
    with pytest.raises(CommandError, match="cannot read"):
        call_command("alerts", do, str(tmp_path / "none"))
    (tmp_path / "odd").write_text("rules: [")
    with pytest.raises(CommandError, match="line 2, column 1"):
        call_command("alerts", do, str(tmp_path / "odd"))


def test_a_secret_is_shown_once_and_an_address_never(admin: APIClient, viewer: APIClient) -> None:
    made = admin.post("/api/v1/alerts/targets", HOOK, format="json").json()
    assert (len(made["secret"]), made["to"]) == (43, "https://hooks.example.org/…")
    (listed,) = viewer.get("/api/v1/alerts/targets").json()["results"]
    assert "secret" not in listed
    assert "secret-path" not in json.dumps(listed)
    changed = admin.put(f"/api/v1/alerts/targets/{made['id']}", {"name": "hook", "kind": "webhook"}, format="json")
    assert (changed.status_code, changed.json()["name"]) == (200, "hook")
    stored = msgspec.json.decode(unseal(Target.objects.get().sealed))
    assert (stored["url"], stored["secret"]) == (HOOK["url"], made["secret"]), "what is not given stays"


def test_a_target_that_cannot_be_decrypted_is_listed_and_can_be_set_again(
    admin: APIClient, viewer: APIClient, settings: Any
) -> None:
    made = admin.post("/api/v1/alerts/targets", HOOK, format="json").json()
    settings.SECRET_KEY = "n" * 60
    (listed,) = viewer.get("/api/v1/alerts/targets").json()["results"]
    assert listed["to"].startswith("cannot be decrypted: see SECRET_KEY_FALLBACKS")
    path = f"/api/v1/alerts/targets/{made['id']}"
    without = refused(admin.put(path, {"name": "oncall", "kind": "webhook"}, format="json"))
    assert (without["status"], without["field"]) == (400, "url")
    again = admin.put(path, HOOK, format="json").json()
    assert (again["to"], len(again["secret"])) == ("https://hooks.example.org/…", 43), "the new secret is shown"
    assert again["secret"] != made["secret"]
    assert admin.put(path, HOOK, format="json").json()["secret"] == ""


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example.org/x",
        "file:///etc/passwd",
        "hooks.example.org/x",
        "https://",
        "https://ada:hunter2@hooks.example.org/x",
        "http://169.254.169.254/latest/hunter2",
        "http://[fe80::1]/x",
        "http://[::ffff:169.254.169.254]/x",
        "http://[64:ff9b::a9fe:a9fe]/hunter2",
        "http://[2002:a9fe:a9fe::1]/hunter2",
        "http://[::a9fe:a9fe]/hunter2",
        "http://[fd20:ce::254]/hunter2",
        "http://192.0.0.192/hunter2",
        "http://a..b/hunter2",
        "http://" + "a" * 64 + ".example.org/hunter2",
        "http://0.0.0.0/hunter2",
        "http://224.0.0.1/x",
        "http://[x/hunter2",
        "http://a b/hunter2",
    ],
)
def test_an_address_that_may_not_be_is_refused_without_repeating_it(admin: APIClient, url: str) -> None:
    found = refused(admin.post("/api/v1/alerts/targets", HOOK | {"url": url}, format="json"))
    assert (found["status"], found["field"]) == (400, "url")
    assert "hunter2" not in json.dumps(found)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9093/x", "http://[::1]/x", "https://10.0.0.7/x"])
def test_loopback_and_private_addresses_are_allowed(admin: APIClient, url: str) -> None:
    assert admin.post("/api/v1/alerts/targets", HOOK | {"url": url}, format="json").status_code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "email", "addresses": []}, "addresses"),
        ({"kind": "email", "addresses": ["ada@example.org\nBcc: eve@example.org"]}, "addresses"),
        ({"secret": "hunter2"}, "secret"),
        ({"url": 7}, "url"),
        ({"kind": "pigeon"}, "kind"),
    ],
)
def test_a_target_that_cannot_be_is_refused(admin: APIClient, change: dict[str, Any], field: str) -> None:
    found = refused(admin.post("/api/v1/alerts/targets", HOOK | change, format="json"))
    assert (found["status"], found["field"]) == (400, field)
    assert "hunter2" not in json.dumps(found)


def test_a_target_in_use_stays(admin: APIClient) -> None:
    target = webhook("http://127.0.0.1:9/x")
    saved_rule(targets=["hook"])
    path = f"/api/v1/alerts/targets/{target.pk}"
    assert refused(admin.delete(path))["detail"] == "these rules use hook: one; remove it from them first"
    Rule.objects.all().delete()
    assert admin.delete(path).status_code == 204


def test_a_target_is_tested(admin: APIClient, viewer: APIClient) -> None:
    target = webhook("http://127.0.0.1:9/x")
    made = admin.post(f"/api/v1/alerts/targets/{target.pk}/actions/test", {}, format="json").json()
    assert (made["notice"], made["state"], made["target"]) == ("test", "queued", "hook")
    assert viewer.get("/api/v1/alerts/deliveries?state=queued").json()["count"] == 1


def test_an_operator_silences_and_ends_it(operator: APIClient, viewer: APIClient) -> None:
    job = Job.objects.create(name="nightly", spec={})
    saved_rule(name="waits", kind="waiting")
    asked = {"rule": "waits", "job": job.pk, "labels": {"gpu": "a100"}, "minutes": 60, "reason": "maintenance"}
    made = operator.post("/api/v1/alerts/silences", asked, format="json").json()
    assert (made["rule"], made["job"], made["labels"], made["created_by"]) == (
        "waits",
        job.pk,
        {"gpu": "a100"},
        "operator",
    )
    assert operator.delete(f"/api/v1/alerts/silences/{made['id']}").status_code == 204
    assert Silence.objects.get().until <= timezone.now()
    assert viewer.get("/api/v1/alerts/silences").json()["count"] == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"minutes": 60}, "at least one of rule, job and labels"),
        ({"rule": "nothere", "minutes": 60}, "the name of a rule"),
        ({"job": 99, "minutes": 60}, "the ID of a job"),
        ({"job": 99}, "required"),
        ({"labels": {"a": "b"}, "minutes": 10**7}, "less than or equal to"),
    ],
)
def test_a_silence_of_everything_or_nothing_is_refused(
    operator: APIClient, asked: dict[str, Any], expected: str
) -> None:
    found = refused(operator.post("/api/v1/alerts/silences", asked, format="json"))
    assert (found["status"], expected in found["detail"]) == (400, True)


def test_a_failed_delivery_is_sent_again_and_no_other(operator: APIClient) -> None:
    row = Delivery.objects.create(target=webhook("http://127.0.0.1:9/x"), notice="test", message={}, state="failed")
    path = f"/api/v1/alerts/deliveries/{row.pk}/actions/resend"
    assert operator.post(path).json()["state"] == "queued"
    assert "only failed deliveries can be sent again" in refused(operator.post(path))["detail"]


def test_notifications_are_alerts_that_fire_and_are_not_silenced(viewer: APIClient) -> None:
    now = timezone.now()
    fields: dict[str, Any] = {"rule_name": "one", "kind": "waiting", "severity": "warning", "summary": "w0 waits"}
    fields |= {"since": now, "seen_at": now}
    for number, (stage, silenced) in enumerate(
        [("firing", False), ("firing", True), ("pending", False), ("resolved", False), ("firing", False)]
    ):
        fired = now + timedelta(seconds=number)
        Alert.objects.create(key=str(number), stage=stage, silenced=silenced, fired_at=fired, **fields)
    found = viewer.get("/api/v1/alerts/news").json()
    assert (found["firing"], len(found["latest"])) == (2, 2)
    assert found["latest"][0]["id"] > found["latest"][1]["id"]
    assert viewer.get("/api/v1/alerts?stage=firing").json()["count"] == 3


NUMBERS = st.floats(0, 604_800).filter(lambda number: number == 0 or number >= 60)
LABELS = st.dictionaries(st.sampled_from(["job", "gpu"]), st.text("abc", max_size=5), max_size=2)


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    known = KINDS[kind].parameters
    chosen = draw(st.sets(st.sampled_from(sorted(known)))) if known else set()
    return {
        "name": draw(st.text("abc ", min_size=1, max_size=8)),
        "kind": kind,
        "severity": draw(st.sampled_from(SEVERITIES)),
        "enabled": draw(st.booleans()),
        "where": draw(LABELS),
        "parameters": {name: draw(st.floats(known[name].least, known[name].most)) for name in chosen},
        "for_s": 0 if KINDS[kind].is_event else draw(NUMBERS),
        "repeat_s": draw(NUMBERS),
    }


@given(document=rules())
def test_a_rule_comes_back_from_its_document(document: dict[str, Any]) -> None:
    rule = parse_rule(document)
    assert parse_rule(rule_document(rule)) == rule
    text = yaml.safe_dump(rules_document([rule]), sort_keys=False, allow_unicode=True)
    assert parse_rules(yaml.safe_load(text)) == [rule]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(document=JSON | st.dictionaries(st.sampled_from([*WAITS, "targets", "where", "clear_s"]), JSON, max_size=4))
def test_nonsense_is_a_rule_or_refused_by_its_field(document: object) -> None:
    for given_document in (document, WAITS | document if isinstance(document, dict) else document):
        try:
            parse_rule(given_document)
        except SpecError:
            continue
