from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("results", "0007_best_of_each_kind")]

    operations = [
        migrations.AddIndex(
            "attempt", models.Index(condition=models.Q(("outcome", "failed")), fields=["lease"], name="failed_under_lease")
        ),
        migrations.AddIndex(
            "attempt", models.Index(condition=models.Q(("outcome", "failed")), fields=["-received_at"], name="failed_last")
        ),
    ]
