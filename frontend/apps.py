"""Django's configuration of this app."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    """Registers the app under its short label."""

    name = "frontend"
    label = "frontend"
