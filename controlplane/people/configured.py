"""An installation's choices about users and sign-in, from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An OpenID Connect provider, and what its claims mean here."""

    issuer: str
    client_id: str
    client_secret: str
    label: str
    """The text of the button on the sign-in page."""
    scopes: str
    name_claim: str
    groups_claim: str
    """May be a path, such as ``realm_access.roles``."""
    roles: Mapping[str, str] = field(hash=False)
    """Roles by group."""
    default_role: str | None
    """The role of users in none of these groups; None: their sign-in is refused."""
    renew_after: timedelta
    """API tokens are refused after this time without a sign-in at the provider."""
    session_lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogTarget:
    """Where entries of the audit trail are sent."""

    transport: str
    """``udp``, ``tcp``, ``tls`` or ``unix``."""
    host: str
    """The path of a ``unix`` socket."""
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """All of it."""

    oidc: Provider | None
    local_accounts: bool
    """Whether passwords of others than emergency accounts are accepted."""
    rates: Mapping[str, tuple[int, int]] | None
    """Requests of one user in a minute, to read and to write; None: not limited."""
    syslog: SyslogTarget | None
