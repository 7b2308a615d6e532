"""The Celery app. Queues: ``decisions`` (threads, a short task per job that has news) and ``history`` (the rest).

Tasks are acknowledged early: what a crash interrupts is found again by the beat task ``rescue``.
"""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
# Django's checks load every page: a third of a service's start. `migrate` has made them before any service starts.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("paceline", amqp="controlplane.runtime.celery_extensions:Broker")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["controlplane.runtime"])


@setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Keeps Celery from configuring logging, since the signal has a receiver; Django has configured it already."""
