"""Django's configuration of this app."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Registers the app under its short label."""

    name = "controlplane.jobs"
    label = "jobs"
    default_auto_field = "django.db.models.BigAutoField"
