"""Django's settings. Everything that differs between installations comes from the environment (see ``environment``)."""

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from controlplane.config.environment import read_environment
from controlplane.config.logs import configure_structlog, logging_config
from controlplane.core.states import JobState, ProcessState
from controlplane.runtime.broker_address import broker_url

ENVIRONMENT = read_environment(os.environ)

BASE_DIR = Path(__file__).resolve().parents[2]
DATA_DIR = ENVIRONMENT.data_dir
DEBUG = ENVIRONMENT.debug
SECRET_KEY = ENVIRONMENT.secret_key
SECRET_KEY_FALLBACKS = ENVIRONMENT.secret_key_fallbacks
PACELINE_URL = ENVIRONMENT.url
REDIS_URL = ENVIRONMENT.redis_url
ALLOWED_HOSTS = ENVIRONMENT.allowed_hosts
TRUSTED_PROXIES = ENVIRONMENT.trusted_proxies
WORKER_HOUR = ENVIRONMENT.worker_hour
KUBERNETES = ENVIRONMENT.kubernetes
CREDENTIAL_LIFETIME = ENVIRONMENT.credential_lifetime
TRACED_PART = ENVIRONMENT.traced_part
OIDC = ENVIRONMENT.people.oidc
LOCAL_ACCOUNTS = ENVIRONMENT.people.local_accounts
RATE_LIMITS = ENVIRONMENT.people.rates
AUDIT_SYSLOG = ENVIRONMENT.people.syslog

ROOT_URLCONF = "controlplane.config.urls"
ASGI_APPLICATION = "controlplane.config.asgi.application"

INSTALLED_APPS = [
    "channels",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_filters",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "controlplane.fleet",
    "controlplane.jobs",
    "controlplane.people",
    "controlplane.telemetry",
    "controlplane.alerts",
    "controlplane.runtime",
    "controlplane.api",
    "frontend",
]

MIDDLEWARE = [
    "controlplane.api.tracing.Tracing",
    "controlplane.api.headers.Headers",
    "controlplane.api.rates.Refusals",
    "django.middleware.security.SecurityMiddleware",
    "frontend.compression.CompressedStatic",
    "frontend.compressed_replies.CompressedReplies",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "controlplane.jobs.viewing.Viewing",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "controlplane.api.problems.BusyDatabase",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Database ------------------------------------------------------------------------------------------------------------

DATABASES: dict[str, dict[str, Any]] = {"default": ENVIRONMENT.database}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        # IMMEDIATE: a writing transaction takes the lock at its start, so that it waits instead of failing later.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # Tests use a file, since in-memory databases lock differently; one per run, so that runs may overlap.
    DATABASES["default"]["TEST"] = {"NAME": str(Path(tempfile.gettempdir(), f"paceline-test-{os.getpid()}.sqlite3"))}

# Redis, Celery -------------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = broker_url(REDIS_URL) or "memory://"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Tasks are acknowledged early, and `rescue` finds lost ones: Redis does not have to keep them until they end.
# Acknowledging over a lost connection would raise an error that Celery does not handle, and end the process.
CELERY_BROKER_TRANSPORT_OPTIONS = {"ack_emulation": False}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "history"
CELERY_TASK_ROUTES = {"controlplane.runtime.tasks.coordinate": {"queue": "decisions"}}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_POOL = "controlplane.runtime.celery_extensions:TaskPool"
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "celerybeat-schedule")
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
CELERY_TIMEZONE = "UTC"


def _every(seconds: float, task: str) -> dict[str, Any]:
    """A beat entry; a run that has not started when the next one is due is dropped."""
    return {"task": f"controlplane.runtime.tasks.{task}", "schedule": seconds, "options": {"expires": seconds * 2}}


CELERY_BEAT_SCHEDULE = {
    "tend jobs and machines": _every(1.0, "tend"),
    "sample machines": _every(10.0, "sample_presence"),
    "simulate alternatives of jobs": _every(10.0, "forecast"),
    "resume simulations": _every(10.0, "rescue_simulations"),
    "seal the audit trail": _every(2.0, "seal_audit"),
    "evaluate alerts": _every(5.0, "evaluate_alerts"),
    "prune old data": _every(3600.0, "prune"),
}

# Mail ----------------------------------------------------------------------------------------------------------------

EMAIL_BACKEND = ENVIRONMENT.mail.get("EMAIL_BACKEND", "django.core.mail.backends.smtp.EmailBackend")
EMAIL_HOST = ENVIRONMENT.mail["EMAIL_HOST"]
EMAIL_PORT = ENVIRONMENT.mail.get("EMAIL_PORT", 25)
EMAIL_HOST_USER = ENVIRONMENT.mail.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = ENVIRONMENT.mail.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = ENVIRONMENT.mail.get("EMAIL_USE_TLS", False)
EMAIL_USE_SSL = ENVIRONMENT.mail.get("EMAIL_USE_SSL", False)
EMAIL_FILE_PATH = ENVIRONMENT.mail.get("EMAIL_FILE_PATH", "")
EMAIL_TIMEOUT = ENVIRONMENT.mail["EMAIL_TIMEOUT"]
DEFAULT_FROM_EMAIL = ENVIRONMENT.mail["DEFAULT_FROM_EMAIL"]

# People, cookies, transport ------------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = [
    "controlplane.people.passwords.ThrottledPasswords",
    "controlplane.people.identities.Identities",
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

SESSION_ENGINE = "controlplane.people.sessions"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENVIRONMENT.https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = [PACELINE_URL]
# The proxy that terminates TLS redirects and sets HSTS for subdomains; agents and probes may connect without TLS.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]
SECURE_HSTS_SECONDS = 31_536_000 if ENVIRONMENT.https else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENVIRONMENT.https else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024

# Static files --------------------------------------------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = ENVIRONMENT.static_root
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "frontend.finders.PlotlyFinder",
]
# A container collects its files once and serves them under hashed names; a checkout serves them from the sources.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": (
            "frontend.storage.HashedFiles" if STATIC_ROOT else "django.contrib.staticfiles.storage.StaticFilesStorage"
        )
    },
}
SERVESTATIC_USE_FINDERS = STATIC_ROOT is None
SERVESTATIC_AUTOREFRESH = DEBUG

# REST ----------------------------------------------------------------------------------------------------------------

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "controlplane.api.authentication.ApiToken",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["controlplane.api.permissions.HasRole"],
    "DEFAULT_THROTTLE_CLASSES": ["controlplane.api.rates.Rates"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.api.parsers.JsonParser", "controlplane.api.parsers.YamlParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "controlplane.api.negotiation.AlwaysJson",
    "DEFAULT_PAGINATION_CLASS": "controlplane.api.pagination.Pages",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "controlplane.api.problems.handle",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}

KNOX_TOKEN_MODEL = "knox.AuthToken"
REST_KNOX = {"TOKEN_TTL": timedelta(days=30), "AUTO_REFRESH": False}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Paceline",
    "DESCRIPTION": "Jobs, machines and policies of a control plane for distributed training.",
    "VERSION": "v1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": None,
    "SERVE_PERMISSIONS": ["controlplane.api.permissions.HasRole"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.api.schema.declare_problems",
    ],
    "ENUM_NAME_OVERRIDES": {
        "JobState": [state.value for state in JobState],
        "ProcessState": [state.value for state in ProcessState],
        "ProcessRole": ["worker", "server"],
        "TeamRole": "controlplane.people.models.Membership.Role",
        "UserRole": ["viewer", "operator", "admin"],
        "WaitingOutcome": ["starts", "waits", "never"],
        "AgentState": "controlplane.fleet.models.Agent.State",
    },
}

# Language, logs ------------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en-gb"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

LOGGING = logging_config(log_format=ENVIRONMENT.log_format, level=ENVIRONMENT.log_level)
configure_structlog()
