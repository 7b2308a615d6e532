"""Settings of an installation about users and sign-in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An OpenID Connect provider, and the mapping of its claims."""

    issuer: str
    client_id: str
    client_secret: str
    label: str
    """The text of the button on the sign-in page."""
    scopes: str
    name_claim: str
    groups_claim: str
    """The claim with the groups, possibly a path such as ``realm_access.roles``."""
    roles: Mapping[str, str] = field(hash=False)
    """The role of each group."""
    default_role: str | None
    """The role of users in none of these groups; None: their sign-in is refused."""
    renew_after: timedelta
    """API tokens are refused after this time without a sign-in at the provider."""
    session_lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogTarget:
    """The server to which entries of the audit trail are sent."""

    transport: str
    """``udp``, ``tcp``, ``tls`` or ``unix``."""
    host: str
    """The host, or the path of a ``unix`` socket."""
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """All these settings."""

    oidc: Provider | None
    local_accounts: bool
    """Whether passwords are accepted for other than emergency accounts."""
    rates: Mapping[str, tuple[int, int]] | None
    """By role, a user's read and write requests per minute; None: not limited."""
    syslog: SyslogTarget | None
