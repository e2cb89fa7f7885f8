"""A listing carries what "best" is ordered by, and of each kind it is counted how many are recommended."""

from __future__ import annotations

from importlib import import_module

from django.db import migrations, models

before = import_module("specweb.results.migrations.0005_who_may_read_a_listing")
KIND, LOCK = before.KIND, before.LOCK
#: As in the migration before, with how many of the rows are recommended.
COUNTED = before.COUNTED.replace("count(*) AS n", "count(*) AS n, count(*) FILTER (WHERE recommended) AS n_best").replace(
    "hardware, mode FROM %s", "hardware, mode, recommended FROM %s"
)
ADD = f"""
    INSERT INTO results_listingtally AS t (key, {KIND}, n, n_best) {COUNTED}
    ON CONFLICT (key) DO UPDATE SET n = t.n + excluded.n, n_best = t.n_best + excluded.n_best;
"""
TAKE = f"""
    UPDATE results_listingtally AS t SET n = t.n - gone.n, n_best = t.n_best - gone.n_best FROM ({COUNTED}) AS gone WHERE t.key = gone.key;
    DELETE FROM results_listingtally AS t USING ({COUNTED}) AS gone WHERE t.key = gone.key AND t.n = 0;
"""  # noqa: S608  (of names that stand in these files alone)
REPLACED = f"""
CREATE OR REPLACE FUNCTION results_listings_came() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {LOCK} {ADD % "came"} RETURN NULL; END $$;
CREATE OR REPLACE FUNCTION results_listings_went() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN {LOCK} {TAKE % ("went", "went")} RETURN NULL; END $$;
CREATE OR REPLACE FUNCTION results_listings_changed() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN {LOCK} {ADD % "came"} {TAKE % ("went", "went")} RETURN NULL; END $$;
CREATE OR REPLACE FUNCTION results_tally_anew() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {LOCK}
    DELETE FROM results_listingtally;
    INSERT INTO results_listingtally (key, {KIND}, n, n_best) {COUNTED % "results_listing"};
END $$;
CREATE OR REPLACE FUNCTION results_listing_readers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    SELECT e.team_id, e.visibility, e.created_by_id INTO NEW.team_id, NEW.visibility, NEW.submitter_id
    FROM experiments_experiment AS e WHERE e.id = NEW.experiment_id FOR SHARE;
    SELECT c.recommended, coalesce(c.ci_low, c.speedup) INTO NEW.recommended, NEW.lower_end
    FROM results_comparison AS c WHERE c.id = NEW.comparison_id;
    RETURN NEW;
END $$;
"""  # noqa: S608
AS_BEFORE = before.MADE.replace("CREATE ", "CREATE OR REPLACE ")
FILLED = """
ALTER TABLE results_listing DISABLE TRIGGER listings_changed;
UPDATE results_listing AS l SET recommended = c.recommended, lower_end = coalesce(c.ci_low, c.speedup)
    FROM results_comparison AS c WHERE c.id = l.comparison_id;
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
ALTER TABLE results_listing ENABLE TRIGGER listings_changed;
"""


class Migration(migrations.Migration):

    dependencies = [("results", "0006_publications")]

    operations = [
        migrations.AddField("listing", "recommended", models.BooleanField(default=False)),
        migrations.AddField("listing", "lower_end", models.FloatField(null=True)),
        migrations.AddField("listingtally", "n_best", models.PositiveIntegerField(default=0)),
        migrations.RunSQL(FILLED, migrations.RunSQL.noop),
        migrations.RunSQL(REPLACED, AS_BEFORE),
        migrations.RunSQL(before.COUNT, migrations.RunSQL.noop),
        migrations.RemoveIndex("listing", "listing_hardware"),
        migrations.AddIndex(
            "listing",
            models.Index(fields=["hardware", "target_hash", "workload", "concurrency", "occupied_context"], name="listing_kind"),
        ),
        migrations.AddIndex(
            "listing",
            models.Index(
                fields=["hardware", "experiment"], include=["team", "visibility", "submitter", "measured_at"], name="listing_on_hardware"
            ),
        ),
    ]
