import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0003_restarts'),
        ('telemetry', '0005_simulations'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='policy',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='job',
            name='simulation',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='telemetry.simulation'),
        ),
    ]
