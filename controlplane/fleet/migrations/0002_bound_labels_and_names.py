"""Labels are what a token said; tokens may be for one machine."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """What machines say of themselves comes again with their next hello."""

    dependencies = [("fleet", "0001_squashed_0005_one_slot_per_process")]

    operations = [
        migrations.RemoveField("agent", "labels"),
        migrations.RenameField("agent", "enrolled_labels", "labels"),
        migrations.AddField("agent", "unverified_labels", models.JSONField(default=dict)),
        migrations.AddField("enrolmenttoken", "name", models.CharField(default="", max_length=100)),
    ]
