"""Django's configuration of this app."""

from django.apps import AppConfig
from django.db.models.signals import pre_delete


class JobsConfig(AppConfig):
    """Registers the app under its short label."""

    name = "controlplane.jobs"
    label = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have processes keep their machine when it is removed."""
        from controlplane.jobs.machines import keep_machine

        pre_delete.connect(keep_machine, sender="fleet.Agent", dispatch_uid="keep_machine")
