"""The Celery app. Queues: ``decisions`` (threads, a short task per job with new messages) and ``history`` (the rest).

Tasks are acknowledged early: the beat task ``rescue`` finds work that a crash interrupted.
"""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
# Skips Django's checks, which take a third of a service's start: `migrate` runs them before any service starts.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("paceline", amqp="controlplane.runtime.celery_extensions:Broker")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["controlplane.runtime"])


@setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Keep Celery from configuring logging, which Django has configured already: the signal only needs a receiver."""
