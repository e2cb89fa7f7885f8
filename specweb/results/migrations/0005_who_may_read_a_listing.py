"""A listing says itself who may read it, and how many there are of each kind is counted as they come and go.

The pages that list results read neither the experiments nor all listings then. Both copies are kept by triggers: who may read a
result must not hang on whether somebody who changes an experiment knows of its listings.
"""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

KIND = "team_id, visibility, submitter_id, target_hash, target, engine, workload, concurrency, occupied_context, hardware, mode"
#: Rows of listings, which take the place of %s, by kind. Only private ones are apart by who submitted them.
COUNTED = f"""
    SELECT md5(concat_ws(chr(31), team_id, visibility, coalesce(submitter_id::text, ''), target_hash, target, engine, workload,
                         concurrency, occupied_context, hardware, mode)) AS key, {KIND}, count(*) AS n
    FROM (SELECT team_id, visibility, CASE visibility WHEN 'private' THEN submitter_id END AS submitter_id, target_hash, target,
                 engine, workload, concurrency, occupied_context, hardware, mode FROM %s) AS kinds
    GROUP BY {KIND}
"""  # noqa: S608  (of names that stand here alone)
ADD = f"""
    INSERT INTO results_listingtally AS t (key, {KIND}, n) {COUNTED}
    ON CONFLICT (key) DO UPDATE SET n = t.n + excluded.n;
"""
TAKE = f"""
    UPDATE results_listingtally AS t SET n = t.n - gone.n FROM ({COUNTED}) AS gone WHERE t.key = gone.key;
    DELETE FROM results_listingtally AS t USING ({COUNTED}) AS gone WHERE t.key = gone.key AND t.n = 0;
"""  # noqa: S608
# One writer at a time: two that take the kinds in another order would wait for each other.
LOCK = "PERFORM pg_advisory_xact_lock(hashtext('results_listingtally'));"

MADE = f"""
CREATE FUNCTION results_listings_came() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {LOCK} {ADD % "came"} RETURN NULL; END $$;
CREATE FUNCTION results_listings_went() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {LOCK} {TAKE % ("went", "went")} RETURN NULL; END $$;
CREATE FUNCTION results_listings_changed() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN {LOCK} {ADD % "came"} {TAKE % ("went", "went")} RETURN NULL; END $$;
CREATE FUNCTION results_tally_anew() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {LOCK}
    DELETE FROM results_listingtally;
    INSERT INTO results_listingtally (key, {KIND}, n) {COUNTED % "results_listing"};
END $$;
CREATE TRIGGER listings_came AFTER INSERT ON results_listing
    REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION results_listings_came();
CREATE TRIGGER listings_went AFTER DELETE ON results_listing
    REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION results_listings_went();
CREATE TRIGGER listings_changed AFTER UPDATE ON results_listing
    REFERENCING OLD TABLE AS went NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION results_listings_changed();
CREATE FUNCTION results_listing_readers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    SELECT e.team_id, e.visibility, e.created_by_id INTO NEW.team_id, NEW.visibility, NEW.submitter_id
    FROM experiments_experiment AS e WHERE e.id = NEW.experiment_id FOR SHARE;
    RETURN NEW;
END $$;
CREATE TRIGGER readers_of_listing BEFORE INSERT ON results_listing FOR EACH ROW EXECUTE FUNCTION results_listing_readers();
CREATE FUNCTION results_experiment_readers_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE results_listing SET team_id = NEW.team_id, visibility = NEW.visibility, submitter_id = NEW.created_by_id
    WHERE experiment_id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER readers_of_listings AFTER UPDATE ON experiments_experiment FOR EACH ROW
    WHEN ((OLD.team_id, OLD.visibility, OLD.created_by_id) IS DISTINCT FROM (NEW.team_id, NEW.visibility, NEW.created_by_id))
    EXECUTE FUNCTION results_experiment_readers_changed();
"""  # noqa: S608
UNMADE = """
DROP TRIGGER readers_of_listings ON experiments_experiment;
DROP TRIGGER readers_of_listing ON results_listing;
DROP TRIGGER listings_came ON results_listing;
DROP TRIGGER listings_went ON results_listing;
DROP TRIGGER listings_changed ON results_listing;
DROP FUNCTION results_experiment_readers_changed, results_listings_came, results_listings_went, results_listings_changed,
    results_tally_anew, results_listing_readers;
"""
FILLED = """
UPDATE results_listing AS l SET team_id = e.team_id, visibility = e.visibility, submitter_id = e.created_by_id
    FROM experiments_experiment AS e WHERE e.id = l.experiment_id;
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
"""
COUNT = "SELECT results_tally_anew(); SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED;"


class Migration(migrations.Migration):

    dependencies = [
        ("experiments", "0008_private_experiments"),
        ("results", "0004_list_what_there_is"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ListingTally",
            fields=[
                ("key", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("visibility", models.CharField(max_length=8)),
                ("target_hash", models.CharField(max_length=80)),
                ("target", models.CharField(max_length=200)),
                ("engine", models.CharField(max_length=20)),
                ("workload", models.CharField(max_length=120)),
                ("concurrency", models.PositiveIntegerField()),
                ("occupied_context", models.PositiveIntegerField()),
                ("hardware", models.CharField(blank=True, max_length=200)),
                ("mode", models.CharField(max_length=40)),
                ("n", models.PositiveIntegerField()),
                ("submitter", models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("team", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team")),
            ],
        ),
        migrations.AddField(
            "listing", "team", models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.team")
        ),
        migrations.AddField("listing", "visibility", models.CharField(default="private", max_length=8), preserve_default=False),
        migrations.AddField(
            "listing",
            "submitter",
            models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL),
        ),
        migrations.RunSQL(FILLED, migrations.RunSQL.noop),
        migrations.AlterField(
            "listing", "team", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.team")
        ),
        migrations.RunSQL(MADE, UNMADE),
        migrations.RunSQL(COUNT, migrations.RunSQL.noop),
        migrations.RemoveIndex("listing", "listing_choices"),
    ]
