"""Django's entry for this app."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """Registers the app under its short label."""

    name = "controlplane.api"
    label = "api"
