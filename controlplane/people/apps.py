"""Django's entry for this app."""

from importlib import import_module

from django.apps import AppConfig


class PeopleConfig(AppConfig):
    """Registers the app under its short label, and the receivers that record logins."""

    name = "controlplane.people"
    label = "people"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the receivers."""
        import_module("controlplane.people.tokens")
        import_module("controlplane.people.trail")
