"""Sends a message by email through Django's backend."""

import smtplib
from collections.abc import Sequence
from typing import Final

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from controlplane.alerts import messages
from controlplane.alerts.messages import Message
from controlplane.alerts.webhook import DeliveryFailed
from controlplane.protocol.text import printable

SMTP: Final = "django.core.mail.backends.smtp.EmailBackend"
FINAL: Final = 500
"""Replies from this code on are permanent errors; lower ones are temporary."""


def send(addresses: Sequence[str], *, arrived: set[str], key: str, message: Message) -> None:
    """Send the message once to each address that has not received it; repeated mails have the same Message-ID.

    Each address gets a separate mail, since Django does not report which recipients of a mail were rejected.

    Raises:
        DeliveryFailed: unless the server accepted it for all; ``arrived`` contains the accepted addresses.
    """
    if settings.EMAIL_BACKEND == SMTP and not settings.EMAIL_HOST:
        raise DeliveryFailed("no mail server is configured: set EMAIL_URL, such as smtp://mail.example.org:25")
    host = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip(" >") or "paceline"
    headers = {"Message-ID": f"<{key}@{host}>", "Auto-Submitted": "auto-generated"}
    subject, body, sender = messages.subject(message), messages.text(message), settings.DEFAULT_FROM_EMAIL
    refused: list[str] = []
    is_final = True
    try:
        with get_connection(fail_silently=False) as connection:
            for address in addresses:
                if address in arrived:
                    continue
                try:
                    EmailMessage(subject, body, sender, [address], connection=connection, headers=headers).send()
                except smtplib.SMTPRecipientsRefused as error:
                    code, answer = next(iter(error.recipients.values()))
                    refused.append(f"{address}: {code} {answer.decode(errors='replace')}")
                    is_final = is_final and code >= FINAL
                else:
                    arrived.add(address)
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryFailed(printable(f"{type(error).__name__}: {error}")[:500]) from None
    if refused:
        why = printable(f"the mail server rejected {'; '.join(refused)}")
        raise DeliveryFailed(why[:500], for_good=is_final)
