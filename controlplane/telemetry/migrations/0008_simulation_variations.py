from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0007_engine_snapshots"),
    ]

    operations = [
        migrations.AddField(
            model_name="simulation",
            name="variation",
            field=models.JSONField(default=dict),
        ),
    ]
