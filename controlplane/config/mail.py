"""Derives Django's mail settings from one URL. Only alerts send mail."""

from typing import Any, Final
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

SCHEMES: Final = ("smtp", "smtp+tls", "smtp+ssl", "filemail", "consolemail")
TIMEOUT_S: Final = 10


def mail_settings(url: str, sender: str) -> dict[str, Any]:
    """The settings for ``EMAIL_URL`` and ``EMAIL_FROM``; without a URL, deliveries fail with an explanation.

    Raises:
        ImproperlyConfigured: for an invalid URL, without repeating it, since it contains a password.
    """
    found: dict[str, Any] = {"EMAIL_HOST": "", "EMAIL_TIMEOUT": TIMEOUT_S, "DEFAULT_FROM_EMAIL": sender}
    if not url.strip():
        return found
    try:
        parts = urlsplit(url.strip())
        scheme, host, _ = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host = "", None
    if scheme not in SCHEMES or (scheme.startswith("smtp") and not host):
        raise ImproperlyConfigured(
            f"EMAIL_URL: found the scheme {scheme[:20]!r}, expected the URL of a mail server such as"
            " smtp+tls://user:password@mail.example.org:587 (smtp+tls: STARTTLS, smtp+ssl: TLS from the start)"
        )
    read = environ.Env.email_url_config(url.strip())
    return found | {name: value for name, value in read.items() if value is not None}
