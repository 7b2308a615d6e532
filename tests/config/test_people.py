"""What the environment may say of people, and how it is refused."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.config.people import read_people
from controlplane.people.configured import SyslogTarget

OIDC = {
    "PACELINE_OIDC_ISSUER": "https://id.example.org/realms/ml/",
    "PACELINE_OIDC_CLIENT_ID": "paceline",
    "PACELINE_OIDC_CLIENT_SECRET": "s",
    "PACELINE_OIDC_ROLES": "CN=ML Admins=admin, ml=viewer",
}


def refusal(**variables: str) -> str:
    with pytest.raises(ImproperlyConfigured) as caught:
        read_people(variables)
    return str(caught.value)


def test_a_provider_has_its_claims_and_roles() -> None:
    found = read_people(OIDC).oidc
    assert found is not None
    assert (found.issuer, found.label, found.roles, found.default_role) == (
        *("https://id.example.org/realms/ml", "id.example.org", {"CN=ML Admins": "admin", "ml": "viewer"}, None),
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PACELINE_OIDC_ISSUER", "http://id.example.org"),
        ("PACELINE_OIDC_ISSUER", "https://user:password@id.example.org"),
        ("PACELINE_OIDC_ISSUER", "https://[x"),
        ("PACELINE_OIDC_CLIENT_ID", ""),
        ("PACELINE_OIDC_CLIENT_SECRET", ""),
        ("PACELINE_OIDC_ROLES", "ml=root"),
        ("PACELINE_OIDC_ROLES", ""),
        ("PACELINE_OIDC_SCOPES", "profile"),
        ("PACELINE_OIDC_DEFAULT_ROLE", "admin"),
        ("PACELINE_OIDC_RENEW_DAYS", "0"),
        ("PACELINE_OIDC_SESSION_HOURS", "a"),
        ("PACELINE_LOCAL_ACCOUNTS", "maybe"),
        ("PACELINE_RATE_LIMITS", "viewer=0/1"),
        ("PACELINE_RATE_LIMITS", "root=1/1"),
        ("PACELINE_AUDIT_SYSLOG", "ftp://log.example.org"),
        ("PACELINE_AUDIT_SYSLOG", "udp://log.example.org:99999"),
    ],
)
def test_what_cannot_be_is_refused_by_name(variable: str, value: str) -> None:
    found = refusal(**{**OIDC, variable: value})
    assert found.startswith(f"{variable}: found ")
    assert "password" not in found


def test_local_accounts_are_not_switched_off_without_a_provider() -> None:
    assert "no user can sign in" in refusal(PACELINE_LOCAL_ACCOUNTS="no")


def test_rates_are_by_role() -> None:
    found = read_people({"PACELINE_RATE_LIMITS": "viewer=10/2"}).rates
    assert found is not None
    assert (found["viewer"], found["admin"]) == ((10, 2), (12_000, 1_200))
    assert read_people({"PACELINE_RATE_LIMITS": "off"}).rates is None


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("udp://log", ("udp", "log", 514)),
        ("tls://log.example.org:9000", ("tls", "log.example.org", 9000)),
        ("unix:///dev/log", ("unix", "/dev/log", 0)),
    ],
)
def test_the_audit_trail_goes_to_a_syslog(address: str, target: tuple[str, str, int]) -> None:
    transport, host, port = target
    found = read_people({"PACELINE_AUDIT_SYSLOG": address}).syslog
    assert found == SyslogTarget(transport=transport, host=host, port=port)
