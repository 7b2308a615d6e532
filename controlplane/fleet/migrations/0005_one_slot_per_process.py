from django.db import migrations, models
from django.db.models import Exists, OuterRef


def free_second_slots(apps, schema_editor):
    """Two schedulers at once could give one process two slots: the later one was never used."""
    reservations = apps.get_model("fleet", "Reservation").objects
    same = {name: OuterRef(name) for name in ("job_id", "role", "index")}
    second = reservations.filter(Exists(reservations.filter(**same, pk__lt=OuterRef("pk"))))
    reservations.filter(pk__in=list(second.values_list("pk", flat=True))).delete()


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0004_agent_rotation'),
    ]

    operations = [
        migrations.RunPython(free_second_slots, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name='reservation',
            constraint=models.UniqueConstraint(fields=('job_id', 'role', 'index'), name='one_slot_per_process'),
        ),
    ]
