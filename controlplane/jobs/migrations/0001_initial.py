import controlplane.core.states
import controlplane.jobs.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('fleet', '0001_initial'),
        ('telemetry', '0001_squashed_0008_simulation_variations'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('spec', models.JSONField()),
                ('idempotency_key', models.CharField(max_length=200, null=True)),
                ('key', models.BinaryField(default=controlplane.jobs.models.new_job_key)),
                ('created_at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('state', models.CharField(choices=[(controlplane.core.states.JobState['SUBMITTED'], controlplane.core.states.JobState['SUBMITTED']), (controlplane.core.states.JobState['SCHEDULED'], controlplane.core.states.JobState['SCHEDULED']), (controlplane.core.states.JobState['STARTING'], controlplane.core.states.JobState['STARTING']), (controlplane.core.states.JobState['RUNNING'], controlplane.core.states.JobState['RUNNING']), (controlplane.core.states.JobState['PAUSED'], controlplane.core.states.JobState['PAUSED']), (controlplane.core.states.JobState['FINISHING'], controlplane.core.states.JobState['FINISHING']), (controlplane.core.states.JobState['SUCCEEDED'], controlplane.core.states.JobState['SUCCEEDED']), (controlplane.core.states.JobState['FAILED'], controlplane.core.states.JobState['FAILED']), (controlplane.core.states.JobState['CANCELLED'], controlplane.core.states.JobState['CANCELLED'])], db_index=True, default=controlplane.core.states.JobState['SUBMITTED'], max_length=10)),
                ('state_since', models.DateTimeField(auto_now_add=True)),
                ('awaited', models.TextField(blank=True, default='')),
                ('reason', models.TextField(blank=True, default='')),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('incarnation', models.PositiveIntegerField(default=0)),
                ('generation', models.PositiveIntegerField(default=0)),
                ('iteration', models.PositiveIntegerField(default=0)),
                ('samples', models.BigIntegerField(default=0)),
                ('training_samples', models.PositiveBigIntegerField(null=True)),
                ('busy_s', models.FloatField(default=0.0)),
                ('waiting_s', models.FloatField(default=0.0)),
                ('coordination_s', models.FloatField(default=0.0)),
                ('loss', models.FloatField(null=True)),
                ('accuracy', models.FloatField(null=True)),
                ('policy', models.CharField(blank=True, default='', max_length=200)),
                ('environment', models.JSONField(default=dict)),
                ('model_path', models.CharField(blank=True, default='', max_length=500)),
                ('model_bytes', models.BigIntegerField(default=0)),
                ('simulation', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='telemetry.simulation')),
                ('submitted_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('priority', models.SmallIntegerField(default=0)),
                ('launch', models.CharField(default='native', max_length=8)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('submitted_by', 'idempotency_key'), name='one_job_per_idempotency_key')],
            },
        ),
        migrations.CreateModel(
            name='Process',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(max_length=6)),
                ('index', models.PositiveIntegerField()),
                ('instance', models.CharField(max_length=100)),
                ('slot', models.PositiveIntegerField(default=0)),
                ('emulate', models.JSONField(null=True)),
                ('environment', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[(controlplane.core.states.ProcessState['ORDERED'], controlplane.core.states.ProcessState['ORDERED']), (controlplane.core.states.ProcessState['READY'], controlplane.core.states.ProcessState['READY']), (controlplane.core.states.ProcessState['UNREACHABLE'], controlplane.core.states.ProcessState['UNREACHABLE']), (controlplane.core.states.ProcessState['FINISHED'], controlplane.core.states.ProcessState['FINISHED']), (controlplane.core.states.ProcessState['LOST'], controlplane.core.states.ProcessState['LOST']), (controlplane.core.states.ProcessState['STOPPED'], controlplane.core.states.ProcessState['STOPPED'])], max_length=12)),
                ('state_since', models.DateTimeField()),
                ('reason', models.TextField(blank=True, default='')),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('share', models.PositiveIntegerField(default=0)),
                ('iteration', models.IntegerField(default=-1)),
                ('blocks', models.PositiveIntegerField(default=0)),
                ('held_bytes', models.BigIntegerField(default=0)),
                ('push_s', models.FloatField(null=True)),
                ('pull_s', models.FloatField(null=True)),
                ('block_times', models.JSONField(default=list)),
                ('counts_from', models.IntegerField(null=True)),
                ('restart', models.JSONField(null=True)),
                ('wants_slot', models.BooleanField(default=False)),
                ('agent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='processes', to='fleet.agent')),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='processes', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'role', 'index', 'instance'), name='one_row_per_instance')],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('incarnation', models.PositiveIntegerField()),
                ('sequence', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(max_length=30)),
                ('cause', models.CharField(max_length=40)),
                ('reason', models.TextField()),
                ('iteration', models.IntegerField(null=True)),
                ('payload', models.JSONField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='jobs.job')),
            ],
            options={
                'indexes': [models.Index(fields=['job', 'kind', 'sequence'], name='jobs_decisi_job_id_7cf156_idx')],
                'constraints': [models.UniqueConstraint(fields=('job', 'incarnation', 'sequence'), name='one_row_per_decision')],
            },
        ),
        migrations.CreateModel(
            name='Flag',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=100)),
                ('subject', models.CharField(default='worker', max_length=6)),
                ('rank', models.PositiveIntegerField()),
                ('kind', models.CharField(max_length=20)),
                ('persistence', models.CharField(max_length=10)),
                ('sentence', models.TextField()),
                ('evidence', models.JSONField(default=dict)),
                ('opened_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(null=True)),
                ('closing_reason', models.TextField(blank=True, default='')),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='flags', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'key'), name='one_row_per_flag')],
            },
        ),
        migrations.CreateModel(
            name='FlagNote',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=100)),
                ('subject', models.CharField(max_length=6)),
                ('rank', models.PositiveIntegerField()),
                ('kind', models.CharField(max_length=20)),
                ('actor', models.CharField(max_length=150)),
                ('at', models.DateTimeField(auto_now=True)),
                ('muted_until', models.DateTimeField(null=True)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='flag_notes', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'key'), name='one_note_per_flag')],
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('actor', models.CharField(max_length=150)),
                ('action', models.CharField(max_length=40)),
                ('subject', models.CharField(max_length=100)),
                ('detail', models.JSONField(default=dict)),
                ('entry', models.CharField(blank=True, default='', max_length=40)),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='requests', to='jobs.job')),
            ],
        ),
        migrations.CreateModel(
            name='JobToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by', models.CharField(max_length=150)),
                ('ends_at', models.DateTimeField(null=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to='jobs.job')),
            ],
        ),
    ]
