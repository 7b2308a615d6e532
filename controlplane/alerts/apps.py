"""Django's entry for this app."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Registers the app under its short label."""

    name = "controlplane.alerts"
    label = "alerts"
    default_auto_field = "django.db.models.BigAutoField"
