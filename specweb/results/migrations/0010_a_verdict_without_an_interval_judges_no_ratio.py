from __future__ import annotations

from django.db import migrations

#: As ``listing.values_of`` has it from now on.
UNJUDGED = """
UPDATE results_listing AS l SET judged = false FROM results_comparison AS c
    WHERE c.id = l.comparison_id AND c.ci_low IS NULL AND l.judged;
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
"""


class Migration(migrations.Migration):

    dependencies = [("results", "0009_where_imports_came_from")]

    operations = [migrations.RunSQL(UNJUDGED, migrations.RunSQL.noop)]
