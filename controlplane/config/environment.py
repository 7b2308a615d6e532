"""Reads environment variables once; errors name the variable, its value and the expected one."""

import glob
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from controlplane.config.mail import mail_settings
from controlplane.config.people import read_people
from controlplane.fleet.cluster import Cluster, MalformedEntry, parse_accounts
from controlplane.people.configured import People
from controlplane.protocol.environment import release_of
from controlplane.runtime.embedded.ground import running_address

REDIS_SCHEMES = ("redis", "rediss", "unix")
DATABASE_SCHEMES = ("sqlite", "postgres", "postgresql")
LOG_FORMATS = ("plain", "json")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FROM_FILES = (
    *("SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASE_URL", "REDIS_URL", "EMAIL_URL"),
    "PACELINE_OIDC_CLIENT_SECRET",
)
MOST_PROXIES = 9
POD_SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder of a pod's service-account token and of the API server's certificate."""

OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTLP_PACKAGES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
MOST_CREDENTIAL_DAYS = 3_650
SECRET_KEY_LENGTH = 50
"""Minimum length, below which Django's deployment check warns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The whole configuration."""

    data_dir: Path
    debug: bool
    secret_key: str
    secret_key_fallbacks: list[str]
    """Earlier keys, which still verify and decrypt data."""
    url: str
    """The URL of this control plane for browsers and agents."""
    allowed_hosts: list[str]
    database: dict[str, Any]
    redis_url: str
    """Empty if not configured: ``manage.py up`` then starts its own Redis."""
    static_root: Path | None
    trusted_proxies: int
    """Number of trusted proxies that append to ``X-Forwarded-For``."""
    log_format: str
    log_level: str
    worker_hour: tuple[float, str] | None
    """The price of an hour of one worker, and its currency; None if it is not set."""
    credential_lifetime: timedelta | None
    """How long an agent's credential is valid; None: unlimited."""
    kubernetes: Cluster | None
    """The cluster whose pods may join with their service accounts; None: disabled."""
    mail: dict[str, Any]
    """Django's mail settings."""
    people: People
    traced_part: float | None
    """The fraction of reports whose decisions OpenTelemetry traces; None without an endpoint."""

    @property
    def https(self) -> bool:
        """Whether cookies are sent over TLS only."""
        return self.url.startswith("https://")


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read and validate the environment. Creates the data folder and, if none is given, the secret key in it.

    Raises:
        ImproperlyConfigured: with the variable, its value, and the expected one.
    """
    variables = _with_files(variables)
    env = environ.Env()
    env.ENVIRON = variables  # type: ignore[assignment]
    data_dir = _data_dir(env.str("PACELINE_DATA_DIR", default="var"))
    debug = _boolean(variables, "DEBUG")
    return Environment(
        data_dir=data_dir,
        debug=debug,
        secret_key=_secret_key(env.str("SECRET_KEY", default=""), data_dir),
        secret_key_fallbacks=_fallbacks(env.str("SECRET_KEY_FALLBACKS", default="")),
        url=_url(env.str("PACELINE_URL", default="") or running_address(data_dir) or "http://127.0.0.1:8000"),
        allowed_hosts=_hosts(env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"]), debug=debug),
        database=_database(env, data_dir),
        redis_url=_redis_url(env.str("REDIS_URL", default="")),
        static_root=Path(root).resolve() if (root := env.str("PACELINE_STATIC_ROOT", default="")) else None,
        trusted_proxies=_proxies(env.str("PACELINE_TRUSTED_PROXIES", default="0")),
        log_format=_one_of(variables, "LOG_FORMAT", LOG_FORMATS),
        log_level=_one_of(variables, "LOG_LEVEL", LOG_LEVELS, default="INFO"),
        worker_hour=_price(env.str("PACELINE_WORKER_HOUR", default="")),
        credential_lifetime=_credential_lifetime(env.str("PACELINE_CREDENTIAL_DAYS", default="90")),
        kubernetes=_kubernetes(env),
        mail=mail_settings(env.str("EMAIL_URL", default=""), env.str("EMAIL_FROM", default="paceline@localhost")),
        people=read_people(variables),
        traced_part=_traced_part(variables),
    )


def _with_files(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with values from files named by ``NAME_FILE``, as containers receive secrets."""
    known = dict(variables)
    for name in FROM_FILES:
        if path := variables.get(f"{name}_FILE"):
            try:
                known[name] = Path(path).read_text().strip()
            except OSError as error:
                raise _refuse(f"{name}_FILE", path, f"a readable file ({error.strerror})") from None
    return known


def _refuse(variable: str, found: object, expected: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{variable}: found {found!r}, expected {expected}")


def _without_secrets(address: str) -> str:
    """An address without the parts before ``@`` and in the query, which may be passwords or tokens."""
    address, question, _ = address.partition("?")
    scheme, slashes, rest = address.rpartition("://")
    _login, at, place = rest.rpartition("@")
    return f"{scheme}{slashes}{'***@' if at else ''}{place}{'?***' if question else ''}"


def _price(value: str) -> tuple[float, str] | None:
    if not value.strip():
        return None
    number, _, unit = value.strip().partition(" ")
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if not (0 <= amount <= 1e6) or len(unit.strip()) > 10:
        raise _refuse("PACELINE_WORKER_HOUR", value, "the price of one worker-hour, such as 0.40 EUR")
    return amount, unit.strip()


def _credential_lifetime(value: str) -> timedelta | None:
    if not (value.isascii() and value.isdecimal() and int(value) <= MOST_CREDENTIAL_DAYS):
        expected = f"the validity of machine credentials in days, 1 to {MOST_CREDENTIAL_DAYS}, or 0: unlimited"
        raise _refuse("PACELINE_CREDENTIAL_DAYS", value, expected)
    return timedelta(days=int(value)) or None


def _proxies(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and int(value) <= MOST_PROXIES):
        raise _refuse("PACELINE_TRUSTED_PROXIES", value, f"the number of proxies in front of it, 0 to {MOST_PROXIES}")
    return int(value)


def _kubernetes(env: environ.Env) -> Cluster | None:
    """The cluster whose pods may join; the other variables have defaults that work inside the cluster."""
    listed = env.str("PACELINE_KUBERNETES_ACCOUNTS", default="")
    try:
        accounts = parse_accounts(listed)
    except MalformedEntry as entry:
        expected = "NAMESPACE/ACCOUNT[:KEY=VALUE,...] separated by spaces, such as paceline/agents:pool=default"
        raise _refuse("PACELINE_KUBERNETES_ACCOUNTS", str(entry), expected) from None
    if not accounts:
        return None
    api = env.str("PACELINE_KUBERNETES_API", default="https://kubernetes.default.svc").rstrip("/")
    if urlsplit(api).scheme != "https" or not urlsplit(api).hostname:
        raise _refuse(
            "PACELINE_KUBERNETES_API", _without_secrets(api), "the API server's address, such as https://10.0.0.1:6443"
        )
    return Cluster(
        accounts=accounts,
        api=api,
        ca=Path(env.str("PACELINE_KUBERNETES_CA", default=f"{POD_SECRETS}/ca.crt")),
        token=Path(env.str("PACELINE_KUBERNETES_TOKEN", default=f"{POD_SECRETS}/token")),
        remove_after=_lifetime(env.str("PACELINE_KUBERNETES_REMOVE_AFTER", default="")),
    )


def _lifetime(value: str) -> timedelta | None:
    if not value:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})([smhd])", value)
    if match is None:
        raise _refuse("PACELINE_KUBERNETES_REMOVE_AFTER", value, "a number with s, m, h or d, such as 1h")
    return timedelta(seconds=int(match[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]])


def _traced_part(variables: Mapping[str, str]) -> float | None:
    """The traced fraction. OpenTelemetry reads its own variables; unsupported values are rejected, not ignored."""
    name = next((name for name in OTLP_ENDPOINTS if variables.get(name, "").strip()), None)
    if name is None or _boolean(variables, "OTEL_SDK_DISABLED"):
        return None
    if urlsplit(variables[name]).scheme not in {"http", "https"}:
        raise _refuse(
            name, _without_secrets(variables[name]), "the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318"
        )
    if not all(map(release_of, OTLP_PACKAGES)):
        cure = "OpenTelemetry to be installed (pip install -r requirements/tracing.txt, or paceline[tracing])"
        raise _refuse(name, _without_secrets(variables[name]), f"no endpoint, or {cure}")
    if (protocol := variables.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")) != "http/protobuf":
        raise _refuse("OTEL_EXPORTER_OTLP_PROTOCOL", protocol, "http/protobuf")
    text = variables.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1"
    try:
        part = float(text)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise _refuse("OTEL_TRACES_SAMPLER_ARG", text, "the fraction of reports to trace, from 0 to 1")
    return part


def _boolean(variables: Mapping[str, str], name: str) -> bool:
    value = variables.get(name, "").strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"", "0", "false", "no", "off"}:
        return False
    raise _refuse(name, variables[name], "1, true, yes, on, or 0, false, no, off")


def _one_of(variables: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
    value = variables.get(name) or default or allowed[0]
    if value not in allowed:
        raise _refuse(name, value, f"one of {', '.join(allowed)}")
    return value


def _data_dir(value: str) -> Path:
    path = Path(value).resolve()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _refuse("PACELINE_DATA_DIR", value, f"a folder that can be created ({error.strerror})") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise _refuse("PACELINE_DATA_DIR", value, "a folder that this user may write; change its owner or use another")
    if path.stat().st_mode & stat.S_ISVTX:
        raise _refuse("PACELINE_DATA_DIR", value, "a separate folder: this one is shared by all users, like /tmp")
    _make_private(path)
    return path


def _make_private(path: Path) -> None:
    """Remove access of other users to a folder or file, unless another user owns it."""
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        path.chmod(found.st_mode & 0o7700)


def _secret_key(value: str, data_dir: Path) -> str:
    if not value:
        return _kept_secret(data_dir / "secret_key")
    if len(value) < SECRET_KEY_LENGTH:
        expected = f"at least {SECRET_KEY_LENGTH} characters; omit it to generate one in the data folder"
        raise _refuse("SECRET_KEY", f"{len(value)} characters", expected)
    return value


def _fallbacks(value: str) -> list[str]:
    found = [secret.strip() for secret in value.split(",") if secret.strip()]
    if any(len(secret) < SECRET_KEY_LENGTH for secret in found):
        expected = f"earlier values of SECRET_KEY, separated by commas, each of at least {SECRET_KEY_LENGTH} characters"
        raise _refuse("SECRET_KEY_FALLBACKS", [f"{len(secret)} characters" for secret in found], expected)
    return found


def _kept_secret(path: Path) -> str:
    """The secret in the data folder, created by the first of several processes that start at once."""
    try:
        secret = _made_secret(path)
    except (OSError, UnicodeDecodeError) as error:
        raise _refuse(
            str(path),
            str(error),
            "the secret created at the first start, readable by this user; change its owner or delete it",
        ) from None
    if len(secret) < SECRET_KEY_LENGTH:
        raise _refuse(
            str(path), f"{len(secret)} characters", "the secret created at first start; delete it to create a new one"
        )
    return secret


def _made_secret(path: Path) -> str:
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _refuse("PACELINE_URL", _without_secrets(value), "a URL such as https://paceline.example.org")
    return value.rstrip("/")


def _hosts(value: list[str], *, debug: bool) -> list[str]:
    if not value:
        raise _refuse("ALLOWED_HOSTS", value, "host names separated by commas")
    for host in value:
        if "/" in host or " " in host:
            raise _refuse("ALLOWED_HOSTS", host, "bare host names separated by commas, without scheme or path")
        if host == "*" and not debug:
            raise _refuse("ALLOWED_HOSTS", host, "the host names of this control plane, or DEBUG=1")
    return value


def _redis_url(value: str) -> str:
    if value and urlsplit(value).scheme not in REDIS_SCHEMES:
        raise _refuse(
            "REDIS_URL", _without_secrets(value), "redis://host:port/db, rediss://... or unix:///path/to/socket"
        )
    return value


def _database(env: environ.Env, data_dir: Path) -> dict[str, Any]:
    value = env.str("DATABASE_URL", default="")
    if value and urlsplit(value).scheme not in DATABASE_SCHEMES:
        raise _refuse("DATABASE_URL", value.partition("@")[0], "sqlite:///path or postgres://user:password@host/name")
    found = dict(env.db_url_config(value or f"sqlite:///{data_dir / 'paceline.sqlite3'}"))
    if found["ENGINE"] == "django.db.backends.sqlite3" and found["NAME"] != ":memory:":
        _close_database(Path(found["NAME"]))
    return found


def _close_database(path: Path) -> None:
    """Restrict the database file; its WAL and index inherit the mode."""
    if not path.parent.is_dir():
        return  # SQLite reports the error with the path
    path.touch(mode=0o600)
    for each in (path, *path.parent.glob(f"{glob.escape(path.name)}-*")):
        with suppress(FileNotFoundError):  # another process ended meanwhile
            _make_private(each)
