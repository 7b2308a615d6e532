from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('alerts', '0002_addresses_that_have_a_mail'),
    ]

    operations = [
        migrations.RenameField(model_name='alert', old_name='told_at', new_name='notified_at'),
    ]
