"""Django's configuration of this app."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Registers the app under its short label."""

    name = "controlplane.telemetry"
    label = "telemetry"
    default_auto_field = "django.db.models.BigAutoField"
