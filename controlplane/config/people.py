"""Reads settings about users: identity provider, local accounts, rate limits, and forwarding of the audit log."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from controlplane.people.configured import People, Provider, SyslogTarget

ROLES: Final = ("viewer", "operator", "admin")
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
SYSLOG_PORTS: Final = {"udp": 514, "tcp": 601, "tls": 6514}
USUAL_RATES: Final = {
    "viewer": (6_000, 120),
    "operator": (9_000, 600),
    "admin": (12_000, 1_200),
}
"""Read and write requests per user and minute, by role."""


def read_people(variables: Mapping[str, str]) -> People:
    """Read the settings about users.

    Raises:
        ImproperlyConfigured: with the variable, its value, and the expected one.
    """
    provider = _provider(variables)
    local = _value(variables, "PACELINE_LOCAL_ACCOUNTS", "yes").lower()
    if local not in {"yes", "no"}:
        raise refuse("PACELINE_LOCAL_ACCOUNTS", local, "yes or no")
    if local == "no" and provider is None:
        raise refuse(
            "PACELINE_LOCAL_ACCOUNTS", local, "yes, or PACELINE_OIDC_ISSUER as well: otherwise no user can sign in"
        )
    return People(
        oidc=provider,
        local_accounts=local == "yes",
        rates=_rates(_value(variables, "PACELINE_RATE_LIMITS", "")),
        syslog=_syslog(_value(variables, "PACELINE_AUDIT_SYSLOG", "")),
    )


def refuse(variable: str, found: object, expected: str) -> ImproperlyConfigured:
    """The error for an invalid variable."""
    return ImproperlyConfigured(f"{variable}: found {found!r}, expected {expected}")


def _value(variables: Mapping[str, str], name: str, default: str) -> str:
    return variables.get(name, "").strip() or default


def _number(variables: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = _value(variables, name, str(default))
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise refuse(name, text, f"a number from {least} to {most}")
    return int(text)


def _provider(variables: Mapping[str, str]) -> Provider | None:
    issuer = _value(variables, "PACELINE_OIDC_ISSUER", "").rstrip("/")
    if not issuer:
        return None
    try:
        parts = urlsplit(issuer)
        secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        host = parts.hostname if "@" not in parts.netloc and not parts.query else None
    except ValueError:
        secure, host = False, None
    if not secure or not host:
        shown = issuer.rpartition("@")[2].partition("?")[0]
        raise refuse("PACELINE_OIDC_ISSUER", shown, "the provider's https:// URL, without credentials or a query")
    client_id = _value(variables, "PACELINE_OIDC_CLIENT_ID", "")
    secret = _value(variables, "PACELINE_OIDC_CLIENT_SECRET", "")
    for name, value in (("PACELINE_OIDC_CLIENT_ID", client_id), ("PACELINE_OIDC_CLIENT_SECRET", secret)):
        if not value:
            raise refuse(name, "", "the value issued by the provider for this client")
    scopes = _value(variables, "PACELINE_OIDC_SCOPES", "openid profile email")
    if "openid" not in scopes.split():
        raise refuse("PACELINE_OIDC_SCOPES", scopes, "scopes separated by spaces, including openid")
    default = _value(variables, "PACELINE_OIDC_DEFAULT_ROLE", "none")
    if default not in {"none", "viewer", "operator"}:
        raise refuse("PACELINE_OIDC_DEFAULT_ROLE", default, "none, viewer or operator")
    roles = _roles(_value(variables, "PACELINE_OIDC_ROLES", ""))
    if not roles and default == "none":
        raise refuse(
            "PACELINE_OIDC_ROLES",
            "",
            "GROUP=ROLE separated by commas, or PACELINE_OIDC_DEFAULT_ROLE: otherwise no user has a role",
        )
    return Provider(
        issuer=issuer,
        client_id=client_id,
        client_secret=secret,
        label=_value(variables, "PACELINE_OIDC_LABEL", host)[:60],
        scopes=scopes,
        name_claim=_value(variables, "PACELINE_OIDC_NAME_CLAIM", "preferred_username"),
        groups_claim=_value(variables, "PACELINE_OIDC_GROUPS_CLAIM", "groups"),
        roles=roles,
        default_role=None if default == "none" else default,
        renew_after=timedelta(days=_number(variables, "PACELINE_OIDC_RENEW_DAYS", 30, 1, 366)),
        session_lasts=timedelta(hours=_number(variables, "PACELINE_OIDC_SESSION_HOURS", 12, 1, 336)),
    )


def _roles(value: str) -> dict[str, str]:
    found = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        group, equals, role = (part.strip() for part in pair.rpartition("="))
        if not group or not equals or role not in ROLES:
            raise refuse("PACELINE_OIDC_ROLES", pair, f"GROUP=ROLE separated by commas, ROLE one of {', '.join(ROLES)}")
        found[group] = role
    return found


def _rates(value: str) -> dict[str, tuple[int, int]] | None:
    if value == "off":
        return None
    found = dict(USUAL_RATES)
    for pair in filter(None, map(str.strip, value.split(","))):
        match = re.fullmatch(r"(viewer|operator|admin)=([1-9]\d{0,6})/([1-9]\d{0,6})", pair)
        if match is None:
            expected = "ROLE=READS/WRITES per minute separated by commas, such as viewer=600/60, or off"
            raise refuse("PACELINE_RATE_LIMITS", pair, expected)
        found[match[1]] = int(match[2]), int(match[3])
    return found


def _syslog(value: str) -> SyslogTarget | None:
    if not value:
        return None
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return SyslogTarget(transport="unix", host=parts.path, port=0)
    if parts.scheme not in SYSLOG_PORTS or not parts.hostname or parts.path.strip("/") or "@" in parts.netloc:
        expected = "udp://HOST[:514], tcp://HOST[:601], tls://HOST[:6514] or unix:///dev/log"
        raise refuse("PACELINE_AUDIT_SYSLOG", value.rpartition("@")[2], expected)
    return SyslogTarget(transport=parts.scheme, host=parts.hostname, port=port or SYSLOG_PORTS[parts.scheme])
