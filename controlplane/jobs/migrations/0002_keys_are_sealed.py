"""Encrypts the keys of jobs that an earlier release stored in clear."""

from django.db import migrations

from controlplane.jobs.sealing import seal, unseal

BARE_BYTES = 32


def seal_keys(apps, schema_editor):
    """Encrypt those that are in clear."""
    jobs = apps.get_model("jobs", "Job").objects
    for pk, key in jobs.values_list("pk", "key").iterator():
        if len(key) == BARE_BYTES:
            jobs.filter(pk=pk).update(key=seal(bytes(key)))


def unseal_keys(apps, schema_editor):
    """Store them in clear again."""
    jobs = apps.get_model("jobs", "Job").objects
    for pk, key in jobs.values_list("pk", "key").iterator():
        if len(key) != BARE_BYTES:
            jobs.filter(pk=pk).update(key=unseal(key))


class Migration(migrations.Migration):
    """After the tables."""

    dependencies = [("jobs", "0001_initial")]
    operations = [migrations.RunPython(seal_keys, unseal_keys, elidable=True)]
