from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0009_training_samples'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='environment',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='process',
            name='environment',
            field=models.JSONField(default=dict),
        ),
    ]
