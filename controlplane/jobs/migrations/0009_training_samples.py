from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0008_block_times'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='training_samples',
            field=models.PositiveBigIntegerField(null=True),
        ),
    ]
