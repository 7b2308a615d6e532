"""Sends one message by mail, through Django's backend."""

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
"""From this code on a refusal is final; below, the server may take it later."""


def send(addresses: Sequence[str], *, arrived: set[str], key: str, message: Message) -> None:
    """Send it once to each address that has not got it; a mail that arrives twice has the same Message-ID.

    Each address gets a message of its own: of one message to several, Django does not say which of them were refused.

    Raises:
        DeliveryFailed: unless the server took it for all; ``arrived`` has those for whom it did.
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
        why = printable(f"the mail server refuses {'; '.join(refused)}")
        raise DeliveryFailed(why[:500], for_good=is_final)
