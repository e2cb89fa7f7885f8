import django.db.models.deletion
from django.db import migrations, models

#: From what hosts have told so far.
SEEN = """
UPDATE experiments_runtime_hosts AS pair SET first_seen_at = seen.first, last_seen_at = seen.last
FROM (
    SELECT told.host_id, build.id AS runtime_id, min(told.received_at) AS first, max(told.received_at) AS last
    FROM experiments_hostinventory AS told
    CROSS JOIN LATERAL jsonb_array_elements(told.content -> 'runtimes') AS offered
    JOIN experiments_runtime AS build ON build.manifest_hash = offered ->> 'manifest_hash'
    GROUP BY told.host_id, build.id
) AS seen
WHERE pair.host_id = seen.host_id AND pair.runtime_id = seen.runtime_id
"""


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0005_early_looks'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(  # the table is there: a host and a build that it offers
            state_operations=[
                migrations.CreateModel(
                    name='HostRuntime',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='experiments.host')),
                        ('runtime', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='experiments.runtime')),
                    ],
                    options={
                        'db_table': 'experiments_runtime_hosts',
                        'unique_together': {('runtime', 'host')},
                    },
                ),
                migrations.AlterField(
                    model_name='runtime',
                    name='hosts',
                    field=models.ManyToManyField(related_name='runtimes', through='experiments.HostRuntime', to='experiments.host'),
                ),
            ],
        ),
        migrations.AddField(
            model_name='hostruntime',
            name='first_seen_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='hostruntime',
            name='last_seen_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(SEEN, migrations.RunSQL.noop),
    ]
