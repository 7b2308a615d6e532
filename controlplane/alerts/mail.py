"""Sends one message by mail, through Django's backend."""

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage

from controlplane.alerts import messages
from controlplane.alerts.messages import Message
from controlplane.alerts.webhook import DeliveryFailed

SMTP = "django.core.mail.backends.smtp.EmailBackend"


def send(*, addresses: list[str], key: str, message: Message) -> None:
    """Send it once; a mail that arrives twice has the same Message-ID.

    Raises:
        DeliveryFailed: unless the server took it.
    """
    if settings.EMAIL_BACKEND == SMTP and not settings.EMAIL_HOST:
        raise DeliveryFailed("no mail server is configured: set EMAIL_URL, such as smtp://mail.example.org:25")
    host = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip(" >") or "paceline"
    mail = EmailMessage(
        subject=messages.subject(message),
        body=messages.text(message),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=addresses,
        headers={"Message-ID": f"<{key}@{host}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        mail.send(fail_silently=False)
    except smtplib.SMTPRecipientsRefused as error:
        raise DeliveryFailed(f"the mail server takes none of the addresses: {error}"[:500], for_good=True) from None
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}"[:500]) from None
