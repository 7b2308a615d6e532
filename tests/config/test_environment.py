"""What the environment may say, and how it is refused."""

import sqlite3
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from kombu import Connection

from controlplane.config.environment import Environment, read_environment
from controlplane.config.people import USUAL_RATES
from controlplane.people.configured import People
from controlplane.runtime.broker_address import broker_url


def read(folder: Path, **variables: str) -> Environment:
    return read_environment({"PACELINE_DATA_DIR": str(folder), **variables})


def refusal(folder: Path, **variables: str) -> str:
    with pytest.raises(ImproperlyConfigured) as caught:
        read(folder, **variables)
    return str(caught.value)


def test_nothing_needs_to_be_configured(tmp_path: Path) -> None:
    found = read(tmp_path / "var")
    assert found == Environment(
        data_dir=tmp_path / "var",
        debug=False,
        secret_key=(tmp_path / "var" / "secret_key").read_text(),
        secret_key_fallbacks=[],
        url="http://127.0.0.1:8000",
        allowed_hosts=["localhost", "127.0.0.1", "[::1]"],
        database=found.database,
        redis_url="",
        static_root=None,
        trusted_proxies=0,
        log_format="plain",
        log_level="INFO",
        worker_hour=None,
        credential_lifetime=timedelta(days=90),
        kubernetes=None,
        mail={"EMAIL_HOST": "", "EMAIL_TIMEOUT": 10, "DEFAULT_FROM_EMAIL": "paceline@localhost"},
        people=People(oidc=None, local_accounts=True, rates=USUAL_RATES, syslog=None),
        traced_part=None,
    )
    assert (found.database["ENGINE"], found.database["NAME"]) == (
        "django.db.backends.sqlite3",
        str(tmp_path / "var" / "paceline.sqlite3"),
    )


def test_the_lifetime_of_machines_credentials_is_in_days(tmp_path: Path) -> None:
    assert read(tmp_path, PACELINE_CREDENTIAL_DAYS="7").credential_lifetime == timedelta(days=7)
    assert read(tmp_path, PACELINE_CREDENTIAL_DAYS="0").credential_lifetime is None
    for wrong in ("", "soon", "-1", "3651"):
        assert "the validity of machine credentials in days" in refusal(tmp_path, PACELINE_CREDENTIAL_DAYS=wrong)


def test_the_price_of_a_worker_hour_has_a_unit(tmp_path: Path) -> None:
    assert read(tmp_path, PACELINE_WORKER_HOUR="0.40 EUR").worker_hour == (0.4, "EUR")
    assert read(tmp_path, PACELINE_WORKER_HOUR="2").worker_hour == (2.0, "")
    for wrong in ("cheap", "-1 EUR", "nan"):
        assert "such as 0.40 EUR" in refusal(tmp_path, PACELINE_WORKER_HOUR=wrong)


def test_what_an_earlier_release_left_open_is_closed(tmp_path: Path) -> None:
    names = ("paceline.sqlite3", "paceline.sqlite3-wal", "paceline.sqlite3-shm")
    tmp_path.chmod(0o755)
    for name in names:
        (tmp_path / name).touch(mode=0o644)
        (tmp_path / name).chmod(0o644)
    read(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in names} == {0o600}


def test_sqlite_s_own_files_are_its_owner_s_alone(tmp_path: Path) -> None:
    name = read(tmp_path).database["NAME"]
    connection = sqlite3.connect(name)
    with connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (x)")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("paceline.sqlite3*")}
    connection.close()
    assert modes == dict.fromkeys(("paceline.sqlite3", "paceline.sqlite3-wal", "paceline.sqlite3-shm"), 0o600)


def test_earlier_secrets_are_named(tmp_path: Path) -> None:
    one, two = "a" * 50, "b" * 60
    assert read(tmp_path, SECRET_KEY_FALLBACKS=f"{one}, {two}").secret_key_fallbacks == [one, two]
    assert "each of at least 50 characters" in refusal(tmp_path, SECRET_KEY_FALLBACKS=f"{one},short")
    (tmp_path / "old").write_text(one)
    assert read(tmp_path, SECRET_KEY_FALLBACKS_FILE=str(tmp_path / "old")).secret_key_fallbacks == [one]


def test_decisions_are_traced_where_a_receiver_is_named(tmp_path: Path) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert read(tmp_path, **endpoint).traced_part == 1.0
    assert read(tmp_path, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="https://x/v1/traces").traced_part == 1.0
    assert read(tmp_path, **endpoint, OTEL_TRACES_SAMPLER_ARG="0.05").traced_part == 0.05
    assert read(tmp_path, **endpoint, OTEL_SDK_DISABLED="true").traced_part is None
    assert read(tmp_path, OTEL_TRACES_SAMPLER_ARG="0.05").traced_part is None


def test_without_opentelemetry_a_receiver_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.config.environment.release_of", lambda package: "")
    assert refusal(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://x:4318") == (
        "OTEL_EXPORTER_OTLP_ENDPOINT: found 'http://x:4318', expected no endpoint, or OpenTelemetry to be installed "
        "(pip install -r requirements/tracing.txt, or paceline[tracing])"
    )


def test_proxies_are_counted(tmp_path: Path) -> None:
    assert read(tmp_path, PACELINE_TRUSTED_PROXIES="2").trusted_proxies == 2
    for wrong in ("many", "-1", "10", "²"):
        assert "the number of proxies" in refusal(tmp_path, PACELINE_TRUSTED_PROXIES=wrong)


def test_a_cluster_whose_pods_may_join_is_named_by_their_accounts(tmp_path: Path) -> None:
    found = read(tmp_path, PACELINE_KUBERNETES_ACCOUNTS="paceline/agents:pool=default").kubernetes
    assert found is not None
    assert [(str(each), each.labels) for each in found.accounts] == [("paceline/agents", {"pool": "default"})]
    inside = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    assert (found.api, found.ca, found.token, found.remove_after) == (
        "https://kubernetes.default.svc",
        inside / "ca.crt",
        inside / "token",
        None,
    )
    given = {"PACELINE_KUBERNETES_ACCOUNTS": "a/*", "PACELINE_KUBERNETES_API": "https://10.0.0.1:6443/"}
    elsewhere = read(tmp_path, **given, PACELINE_KUBERNETES_REMOVE_AFTER="90m").kubernetes
    assert elsewhere is not None
    assert (elsewhere.api, elsewhere.remove_after) == ("https://10.0.0.1:6443", timedelta(minutes=90))
    assert refusal(tmp_path, PACELINE_KUBERNETES_ACCOUNTS="agents").startswith(
        "PACELINE_KUBERNETES_ACCOUNTS: found 'agents', expected NAMESPACE/ACCOUNT"
    )
    assert "such as 1h" in refusal(tmp_path, **given, PACELINE_KUBERNETES_REMOVE_AFTER="soon")
    assert "PACELINE_KUBERNETES_API: found 'http://" in refusal(
        tmp_path, **given | {"PACELINE_KUBERNETES_API": "http://x"}
    )


def test_the_secret_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    assert read(tmp_path).secret_key == read(tmp_path).secret_key
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "secret_key": 0o600,
        "paceline.sqlite3": 0o600,
    }


def test_secrets_may_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 60 + "\n")
    assert read(tmp_path, SECRET_KEY_FILE=str(tmp_path / "secret")).secret_key == "s" * 60


def test_postgresql_is_chosen_by_its_address(tmp_path: Path) -> None:
    database = read(tmp_path, DATABASE_URL="postgres://ada:pw@db:5433/paceline").database
    wanted = {"ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT"}
    assert {key: database[key] for key in wanted} == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "paceline",
        "USER": "ada",
        "PASSWORD": "pw",
        "HOST": "db",
        "PORT": 5433,
    }


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"DEBUG": "maybe"}, "DEBUG: found 'maybe', expected 1, true, yes, on, or 0, false, no, off"),
        ({"REDIS_URL": "localhost:6379"}, "REDIS_URL: found 'localhost:6379', expected redis://host:port/db, "),
        ({"DATABASE_URL": "mysql://root@db/x"}, "DATABASE_URL: found 'mysql://root', expected sqlite:///path or "),
        ({"ALLOWED_HOSTS": "*"}, "ALLOWED_HOSTS: found '*', expected the host names of this control plane, or DEBUG=1"),
        ({"ALLOWED_HOSTS": "http://x"}, "ALLOWED_HOSTS: found 'http://x', expected bare host names"),
        ({"PACELINE_URL": "paceline.org"}, "PACELINE_URL: found 'paceline.org', expected a URL such as https://"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY: found '5 characters', expected at least 50 characters; omit it"),
        ({"LOG_FORMAT": "xml"}, "LOG_FORMAT: found 'xml', expected one of plain, json"),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL: found 'loud', expected one of DEBUG, INFO, WARNING, ERROR"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "x:4317"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: found 'x:4317', expected the URL of an OTLP/HTTP receiver",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: found 'grpc', expected http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_SAMPLER_ARG": "5%"},
            "OTEL_TRACES_SAMPLER_ARG: found '5%', expected the fraction of reports to trace, from 0 to 1",
        ),
        ({"SECRET_KEY_FILE": "/nowhere"}, "SECRET_KEY_FILE: found '/nowhere', expected a readable file"),
    ],
)
def test_bad_values_are_refused_with_the_cure(tmp_path: Path, variables: dict[str, str], sentence: str) -> None:
    assert refusal(tmp_path, **variables).startswith(sentence)


def test_mail_is_sent_by_the_server_that_is_named(tmp_path: Path) -> None:
    assert read(tmp_path).mail["EMAIL_HOST"] == ""
    found = read(tmp_path, EMAIL_URL="smtp+tls://ada:p%40ss@mail.example.org:587", EMAIL_FROM="alerts@example.org").mail
    names = ("EMAIL_HOST", "EMAIL_PORT", "EMAIL_HOST_USER", "EMAIL_HOST_PASSWORD", "EMAIL_USE_TLS")
    assert [found[name] for name in names] == ["mail.example.org", 587, "ada", "p@ss", True]
    assert found["DEFAULT_FROM_EMAIL"] == "alerts@example.org"
    for wrong in ("mail.example.org", "https://ada:hunter2@mail.example.org", "smtp://", "smtp://[hunter2"):
        found_refusal = refusal(tmp_path, EMAIL_URL=wrong)
        assert found_refusal.startswith("EMAIL_URL: found the scheme ")
        assert "hunter2" not in found_refusal


def test_a_password_is_not_repeated_in_a_refusal(tmp_path: Path) -> None:
    assert "hunter2" not in refusal(tmp_path, DATABASE_URL="mysql://root@hunter2/x")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://ada:hunter2@x:4317", "grpc://***@x:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ada:hunter2@x:4317/v1", "***@x:4317/v1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://ada:p@hunter2@x:4317", "grpc://***@x:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://x:4317?token=hunter2", "grpc://x:4317?***"),
        ("REDIS_URL", "redis+tls://:hunter2@x:6379/0", "redis+tls://***@x:6379/0"),
        ("PACELINE_URL", "ftp://ada:hunter2@x", "ftp://***@x"),
    ],
)
def test_an_address_is_repeated_without_its_secrets(tmp_path: Path, name: str, value: str, shown: str) -> None:
    assert refusal(tmp_path, **{name: value}).startswith(f"{name}: found {shown!r}, expected ")


def test_an_endpoint_of_a_missing_package_is_repeated_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.config.environment.release_of", lambda package: "")
    assert "hunter2" not in refusal(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://ada:hunter2@x:4318")


def test_a_data_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file" / "var") == (
        f"PACELINE_DATA_DIR: found '{tmp_path}/file/var', expected a folder that can be created (Not a directory)"
    )


def test_a_folder_that_all_users_share_is_refused_and_left_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert refusal(tmp_path) == (
        f"PACELINE_DATA_DIR: found '{tmp_path}', expected a separate folder: this one is shared by all users, like /tmp"
    )
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_celery_spells_unix_sockets_its_own_way() -> None:
    assert [
        broker_url("redis://:pw@host:6379/1"),
        broker_url("unix:///tmp/redis.sock"),
        broker_url("unix:///tmp/redis.sock?db=2&password=a%2Fb"),
        broker_url("unix://:secret@/tmp/redis.sock"),
    ] == [
        "redis://:pw@host:6379/1",
        "redis+socket:///tmp/redis.sock?virtual_host=0",
        "redis+socket://:a%2Fb@/tmp/redis.sock?virtual_host=2",
        "redis+socket://:secret@/tmp/redis.sock?virtual_host=0",
    ]


def test_celery_verifies_the_certificate_of_redis_by_default() -> None:
    assert [
        broker_url("rediss://:pw@host:6380/1"),
        broker_url("rediss://:pw@host:6380/1?ssl_ca_certs=/etc/ca.crt"),
        broker_url("rediss://:pw@host:6380/1?ssl_cert_reqs=none"),
    ] == [
        "rediss://:pw@host:6380/1?ssl_cert_reqs=required",
        "rediss://:pw@host:6380/1?ssl_ca_certs=/etc/ca.crt&ssl_cert_reqs=required",
        "rediss://:pw@host:6380/1?ssl_cert_reqs=none",
    ]
    (verified,) = (Connection(broker_url("rediss://host")).ssl,)
    assert verified == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
