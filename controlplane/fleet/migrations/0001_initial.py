import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('credential_digest', models.CharField(max_length=64, unique=True)),
                ('next_digest', models.CharField(max_length=64, null=True, unique=True)),
                ('can_rotate', models.BooleanField(default=False)),
                ('rotation_asked_at', models.DateTimeField(null=True)),
                ('rotated_at', models.DateTimeField(null=True)),
                ('rotation_failure', models.TextField(default='')),
                ('state', models.CharField(choices=[('online', 'Online'), ('offline', 'Offline')], default='offline', max_length=10)),
                ('version', models.CharField(default='', max_length=40)),
                ('host', models.CharField(default='127.0.0.1', max_length=255)),
                ('labels', models.JSONField(default=dict)),
                ('slots', models.JSONField(default=list)),
                ('server_slots', models.PositiveIntegerField(default=0)),
                ('cpu_count', models.PositiveIntegerField(default=1)),
                ('memory_bytes', models.BigIntegerField(default=0)),
                ('environment', models.JSONField(default=dict)),
                ('joined_at', models.DateTimeField(auto_now_add=True)),
                ('seen_at', models.DateTimeField(null=True)),
                ('unverified_labels', models.JSONField(default=dict)),
                ('remove_after', models.DurationField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(max_length=6)),
                ('slot', models.PositiveIntegerField()),
                ('job_id', models.BigIntegerField(db_index=True)),
                ('index', models.PositiveIntegerField()),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reservations', to='fleet.agent')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('agent', 'role', 'slot'), name='one_process_per_slot'), models.UniqueConstraint(fields=('job_id', 'role', 'index'), name='one_slot_per_process')],
            },
        ),
        migrations.CreateModel(
            name='EnrolmentToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('labels', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('name', models.CharField(default='', max_length=100)),
                ('remove_after', models.DurationField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('used', models.PositiveIntegerField(default=0)),
                ('uses', models.PositiveIntegerField(default=1)),
            ],
        ),
        migrations.AddField(
            model_name='agent',
            name='token',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='agents', to='fleet.enrolmenttoken'),
        ),
        migrations.CreateModel(
            name='AgentSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('cpu', models.FloatField()),
                ('memory', models.FloatField()),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='fleet.agent')),
                ('others', models.JSONField(default=dict)),
            ],
            options={
                'indexes': [models.Index(fields=['agent', 'at'], name='fleet_agent_agent_i_236bd2_idx')],
            },
        ),
    ]
