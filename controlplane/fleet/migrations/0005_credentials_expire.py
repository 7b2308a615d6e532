"""Credentials of agents expire: those that are there have a whole lifetime from now on, so that no one is locked out."""

from django.conf import settings
from django.db import migrations, models
from django.utils import timezone


def begin_lifetime(apps, schema_editor):
    """As if each credential was made now."""
    if settings.CREDENTIAL_LIFETIME is not None:
        expires_at = timezone.now() + settings.CREDENTIAL_LIFETIME
        apps.get_model("fleet", "Agent").objects.update(credential_expires_at=expires_at)


class Migration(migrations.Migration):
    """After the tests of machines."""

    dependencies = [("fleet", "0004_machine_tests")]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="credential_expires_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="agent",
            name="renewal_asked_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunPython(begin_lifetime, migrations.RunPython.noop, elidable=True),
    ]
