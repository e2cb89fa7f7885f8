"""The bench of the pages: copies are experiments of their own, and a goal that is missed is named."""

from __future__ import annotations

from bench import web, web_fill, web_template
from bench.web_template import TOKEN, Part, Template, _tokened

EXPERIMENT, JOB = "01a22e3b-e248-760c-b852-073d68959a7b", "01a22e3b-e249-71f3-9fd2-50ae0b3c4f10"


def template() -> Template:
    return _tokened(
        [
            Part("experiments_experiment", ["id", "spec_hash", "created_at"], [[EXPERIMENT, "f" * 64, "2026-11-30 20:50:08.123+00"]]),
            Part("experiments_job", ["id", "experiment_id", "plan"], [[JOB, EXPERIMENT, f'{{"job_id": "{JOB}"}}']]),
            Part("results_trial", ["id", "job_id", "index"], [["17", JOB, "17"], ["18", JOB, "18"]]),
            Part("results_attempt", ["id", "trial_id"], [["9a3e4de0-5663-4ab5-8faf-82f2d46b13b1", "18"]]),
        ]
    )


def test_every_id_of_a_copy_is_its_own_and_still_fits() -> None:
    made = template()
    job, trial, attempt = (made.part(f).rows for f in ("experiments_job", "results_trial", "results_attempt"))
    assert TOKEN in job[0][0]
    assert job[0][1] == made.part("experiments_experiment").rows[0][0]
    assert job[0][2] == f'{{"job_id": "{job[0][0]}"}}'
    assert [row[1] for row in trial] == [job[0][0]] * 2
    assert [row[2] for row in trial] == ["17", "18"]  # a number that is no id stays
    assert attempt[0][1] == trial[1][0]
    one, two = (made.part("results_trial").text().replace(TOKEN, f"{k:08d}") for k in (1, 2))
    assert {line.split("\t")[0] for line in one.splitlines()}.isdisjoint(line.split("\t")[0] for line in two.splitlines())
    assert int(trial[1][0]) < 2**63
    assert made.part("experiments_experiment").rows[0][2] == web_template.MOMENT
    assert made.part("experiments_experiment").rows[0][1].startswith(TOKEN)


def test_the_same_seed_fills_the_same_and_another_does_not() -> None:
    offer = web_fill.Offer("h", "i", "GPU", "550", [(1, "r", "b1", "cuda"), (2, "s", "b2", "cuda")], [(1, "m", "a"), (2, "n", "b")])
    world = web_fill.World([(1, 1, [offer]), (2, 2, [offer])], 1)
    made = [template()]

    def filled(seed: int) -> list[tuple[object, ...]]:
        return [(c.team, c.visibility, c.runtime, c.model, c.day) for c in web_fill.copies(world, made, 50, seed)]

    assert filled(1) == filled(1) != filled(2)
    assert {visibility for _, visibility, *_ in filled(1)} == {"public", "team", "private"}
    days = [day for *_, day in filled(1)]
    assert days == sorted(days)
    assert sum(c.running for c in web_fill.copies(world, made, 50, 1)) == web_fill.N_RUNNING


def test_a_goal_that_is_missed_is_named() -> None:
    small = web.Row("home", 10_000, 20, 30, 10, 20, 9, 9000)
    held = web.Row("home", 1_000_000, 29, 39, 15, 20, 12, 9000)
    assert web.broken(held, [small, held]) == ""
    missed = web.Row("home", 1_000_000, 31, 151, 15, 70, 13, 9000)
    assert web.broken(missed, [small, missed]) == "over 150 ms, over 12 statements, over 1.5 times the small one's, over 2 times its SQL"
    assert "| home | 1,000,000 | 29 | 39 | 20.0 | 1.9 | 12 | 9 |  |" in web.table([held])
    assert web._p95([float(n) for n in range(1, 101)]) == 96.0
