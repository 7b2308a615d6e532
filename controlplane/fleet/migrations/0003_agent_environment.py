from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0002_agent_enrolled_labels'),
    ]

    operations = [
        migrations.AddField(
            model_name='agent',
            name='environment',
            field=models.JSONField(default=dict),
        ),
    ]
