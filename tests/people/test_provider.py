"""Signing in at an OpenID Connect provider, a process of its own: who gets which role, and who is refused."""

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from controlplane.jobs.models import AuditEntry
from controlplane.jobs.roles import Role, role_of
from controlplane.people.models import Identity, Session
from tests.support.oidc import OidcProvider, running_provider

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::authlib.deprecate.AuthlibDeprecationWarning"),
]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(autouse=True)
def _configured(provider: OidcProvider, settings: Any, roles: None) -> None:
    settings.OIDC = provider.configured()


def sign_in(provider: OidcProvider, client: Client, subject: str, after: str = "") -> Any:
    begun = client.get("/login/oidc/", {"next": after} if after else {})
    assert begun.status_code == 302, begun.content
    return client.get(provider.approve(begun["Location"], subject), REMOTE_ADDR="192.0.2.7")


def sentence(reply: Any) -> str:
    """What the page of a refusal says."""
    text = reply.content.decode()
    assert "You are not signed in" in text
    return " ".join(text.partition("<p>")[2].partition("</p>")[0].split())


def test_groups_give_the_highest_of_their_roles(provider: OidcProvider, client: Client) -> None:
    provider.knows("s-1", preferred_username="ada", email="ada@example.org", groups=["all", "ml", "cooks"])
    reply = sign_in(provider, client, "s-1", after="/jobs/")
    assert (reply.status_code, reply["Location"]) == (302, "/jobs/")
    ada = User.objects.get()
    assert (ada.username, ada.email, role_of(ada), ada.has_usable_password()) == (
        *("ada", "ada@example.org", Role.OPERATOR, False),
    )
    assert client.get("/jobs/").status_code == 200
    assert AuditEntry.objects.get(action="login").detail == {"address": "192.0.2.7", "by": "identity provider"}
    assert Session.objects.get(user=ada).expire_date < timezone.now() + timedelta(hours=12, seconds=5)


def test_the_role_is_that_of_the_last_sign_in(provider: OidcProvider, client: Client) -> None:
    for groups, role in ((["ml-admins"], Role.ADMIN), (["all"], Role.VIEWER)):
        provider.knows("s-2", preferred_username="bob", groups=groups)
        sign_in(provider, Client(), "s-2")
        assert role_of(User.objects.get(username="bob")) == role
    provider.knows("s-2", preferred_username="bob", groups=[])
    refused = sign_in(provider, client, "s-2")
    assert (refused.status_code, role_of(User.objects.get(username="bob"))) == (403, None)
    changes = AuditEntry.objects.filter(action="role-change").order_by("id").values_list("detail", flat=True)
    assert [(change["from"], change["to"]) for change in changes] == [
        *(([], "admin"), (["admin"], "viewer"), (["viewer"], None)),
    ]


def test_a_user_without_a_group_sees_which_groups_exist(provider: OidcProvider, client: Client) -> None:
    provider.knows("s-3", preferred_username="eve", groups=["cooks"])
    reply = sign_in(provider, client, "s-3")
    assert (reply.status_code, User.objects.count(), "sessionid" in client.cookies) == (403, 0, False)
    assert sentence(reply) == "None of your groups at the identity provider gives a role here. Found: cooks."
    assert "ml-admins, ml, all" in reply.content.decode()
    assert AuditEntry.objects.get(action="login-failed").subject == "subject s-3"


def test_a_default_role_is_given_to_who_has_no_group(provider: OidcProvider, client: Client, settings: Any) -> None:
    settings.OIDC = provider.configured(PACELINE_OIDC_DEFAULT_ROLE="viewer")
    provider.knows("s-4", preferred_username="gus")
    sign_in(provider, client, "s-4")
    assert role_of(User.objects.get()) == Role.VIEWER


def test_groups_may_be_inside_another_claim(provider: OidcProvider, client: Client, settings: Any) -> None:
    settings.OIDC = provider.configured(PACELINE_OIDC_GROUPS_CLAIM="realm_access.roles")
    provider.knows("s-5", preferred_username="hal", realm_access={"roles": ["ml"]})
    sign_in(provider, client, "s-5")
    assert role_of(User.objects.get()) == Role.OPERATOR


def test_a_local_account_of_that_name_is_not_taken_over(provider: OidcProvider, client: Client) -> None:
    User.objects.create_user("Root", is_superuser=True)
    provider.knows("s-6", preferred_username="root", groups=["all"])
    assert sentence(sign_in(provider, client, "s-6")).startswith("There is a local account &#x27;root&#x27; already.")
    User.objects.filter(username="Root").update(is_superuser=False)
    call_command("access", "Root", "--role", "viewer", "--subject", "s-6", stdout=StringIO())
    assert sign_in(provider, client, "s-6").status_code == 302
    assert Identity.objects.get().user.username == "Root"


def test_a_superuser_cannot_be_linked(provider: OidcProvider) -> None:
    User.objects.create_user("root", is_superuser=True)
    with pytest.raises(CommandError, match="root is a superuser"):
        call_command("access", "root", "--subject", "s-7", stdout=StringIO())


def test_a_user_who_was_renamed_at_the_provider_stays_the_same(provider: OidcProvider) -> None:
    for name in ("ida", "ida.new"):
        provider.knows("s-8", preferred_username=name, groups=["all"])
        sign_in(provider, Client(), "s-8")
    assert User.objects.get().username == "ida"


def test_another_state_is_refused(provider: OidcProvider, client: Client) -> None:
    provider.knows("s-9", preferred_username="ada", groups=["all"])
    begun = client.get("/login/oidc/")["Location"]
    back = provider.approve(begun, "s-9")
    state = parse_qs(urlsplit(back).query)["state"][0]
    for address, asking in ((back.replace(state, "other"), client), (back, Client()), ("/login/oidc/return/", client)):
        reply = asking.get(address)
        assert (reply.status_code, User.objects.count()) == (400, 0)
        assert sentence(reply) == "This sign-in was not begun in this browser, or more than ten minutes ago."


def test_an_answer_serves_once(provider: OidcProvider, client: Client) -> None:
    provider.knows("s-10", preferred_username="ada", groups=["all"])
    cookie = client.get("/login/oidc/")
    back = provider.approve(cookie["Location"], "s-10")
    held = cookie.cookies["oidc"].value
    assert client.get(back).status_code == 302
    again = Client()
    again.cookies["oidc"] = held
    assert sentence(again.get(back)) == "The identity provider&#x27;s answer is not valid."


def test_a_cookie_that_was_changed_is_refused(provider: OidcProvider, client: Client) -> None:
    begun = client.get("/login/oidc/")
    client.cookies["oidc"] = begun.cookies["oidc"].value[:-2] + "xx"
    assert client.get(provider.approve(begun["Location"], "s-11")).status_code == 400


def test_who_refuses_at_the_provider_is_not_signed_in(provider: OidcProvider, client: Client) -> None:
    begun = client.get("/login/oidc/")["Location"]
    reply = client.get(provider.deny(begun))
    assert (reply.status_code, sentence(reply)) == (403, "The identity provider did not sign you in.")


def test_what_an_address_reports_is_not_repeated(client: Client) -> None:
    client.get("/login/oidc/")
    reply = client.get("/login/oidc/return/", {"error": "x", "error_description": "Call 0123 and say your password"})
    assert "0123" not in reply.content.decode()


def test_an_expired_answer_is_refused(tmp_path: Path, client: Client, settings: Any) -> None:
    with running_provider(tmp_path, "--token-max-age", "-3600") as late:
        settings.OIDC = late.configured()
        late.knows("s-12", preferred_username="ada", groups=["all"])
        reply = sign_in(late, client, "s-12")
    assert (reply.status_code, sentence(reply)) == (403, "The identity provider&#x27;s answer has expired.")


def test_a_provider_that_does_not_answer_is_reported(client: Client, settings: Any, provider: OidcProvider) -> None:
    settings.OIDC = OidcProvider("http://127.0.0.1:9").configured()
    reply = client.get("/login/oidc/")
    assert (reply.status_code, sentence(reply)) == (502, "The identity provider does not answer.")


def test_a_provider_of_another_name_is_refused(client: Client, settings: Any, provider: OidcProvider) -> None:
    settings.OIDC = OidcProvider(provider.url.replace("127.0.0.1", "localhost") + "/").configured()
    object.__setattr__(settings.OIDC, "issuer", provider.url + "/realm")
    assert client.get("/login/oidc/").status_code == 502


@pytest.mark.parametrize("after", ["https://evil.example.org/", "//evil.example.org", "javascript:alert(1)", "jobs"])
def test_a_sign_in_leads_nowhere_else(provider: OidcProvider, client: Client, after: str) -> None:
    provider.knows("s-13", preferred_username="ada", groups=["all"])
    assert sign_in(provider, client, "s-13", after=after)["Location"] == "/"


def test_nothing_is_stored_before_the_sign_in_returns(client: Client) -> None:
    for _ in range(3):
        client.get("/login/oidc/")
    assert Session.objects.count() == 0


def test_an_account_that_is_switched_off_is_refused(provider: OidcProvider) -> None:
    provider.knows("s-14", preferred_username="ada", groups=["all"])
    sign_in(provider, Client(), "s-14")
    User.objects.update(is_active=False)
    assert sentence(sign_in(provider, Client(), "s-14")) == "The account ada is disabled."


def test_tokens_of_who_has_not_signed_in_for_long_are_refused(provider: OidcProvider) -> None:
    provider.knows("s-15", preferred_username="ada", groups=["all"])
    sign_in(provider, Client(), "s-15")
    _, secret = AuthToken.objects.create(user=User.objects.get())
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    assert client.get("/api/v1/me").status_code == 200
    Identity.objects.update(signed_in_at=timezone.now() - timedelta(days=31))
    reply = client.get("/api/v1/me")
    assert (reply.status_code, "for 30 days: sign in there" in reply.json()["detail"]) == (401, True)


@pytest.fixture
def _off(settings: Any) -> None:
    settings.LOCAL_ACCOUNTS = False
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.mark.usefixtures("_off")
def test_local_accounts_can_be_switched_off(client: Client) -> None:
    User.objects.create_user("ada", password="pace-line-1", is_superuser=True)
    reply = client.post("/login/", {"username": "ada", "password": "pace-line-1"})
    assert (reply.status_code, "Incorrect user name or password." in reply.content.decode()) == (200, True)
    page = client.get("/login/").content.decode()
    assert ("Sign in with 127.0.0.1" in page, "Emergency account" in page) == (True, True)


@pytest.mark.usefixtures("_off")
def test_an_emergency_account_signs_in_anyway(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("break-the-glass-7\n"))
    call_command("access", "glass", "--emergency", "--password-stdin", stdout=StringIO())
    reply = client.post("/login/", {"username": "glass", "password": "break-the-glass-7"})
    assert (reply.status_code, role_of(User.objects.get())) == (302, Role.ADMIN)
    assert AuditEntry.objects.get(action="access").detail["emergency"] is True


def test_an_emergency_account_needs_a_password() -> None:
    with pytest.raises(CommandError, match="--emergency: expected --password-stdin"):
        call_command("access", "glass", "--emergency", stdout=StringIO())
