"""What the live driver knows of jobs and of its Redis."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('jobs', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Forecast',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='forecast', serialize=False, to='jobs.job')),
                ('answer', models.JSONField(null=True)),
                ('reason', models.TextField(blank=True, default='')),
                ('took_s', models.FloatField(default=0.0)),
                ('made_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='GivenIncarnation',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='given_incarnation', serialize=False, to='jobs.job')),
                ('number', models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='KnownRedis',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('identity', models.CharField(max_length=40, unique=True)),
                ('met_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
