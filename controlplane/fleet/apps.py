"""Django's configuration of this app."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Registers the app under its short label."""

    name = "controlplane.fleet"
    label = "fleet"
    default_auto_field = "django.db.models.BigAutoField"
