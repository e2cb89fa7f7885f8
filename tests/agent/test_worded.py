"""Occupied context, thinking and tasks on the real engine: what is sent, what the engine counts, what is measured of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import psutil
import pytest
from specagent import evidence, runner
from specagent.config import Config
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from speccore import measure, records
from speccore.compare import JobFacts, analyse_job
from speccore.errors import ThinkingNotPossible
from speccore.measurement import AttemptMeasurement, Number, Withheld, value_of
from speccore.protocol import Running
from speccore.workload import Item, Turn, Workload

from tests.agent.conftest import Ran, make_spec

ENGINE = {"context": 1024, "start_timeout_s": 30, "probe_timeout_s": 20}
FULL = {"workload": "numbers", "max_tokens": 16, "probes": 2, "occupied_context": 777}
THINKING_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if enable_thinking %}<think>\n{% else %}<think>\n</think>\n{% endif %}"
)


def texts_of(folder: Path) -> dict[str, str]:
    lines = [records.TextRecord.model_validate_json(line) for line in (folder / records.TEXTS).read_text().splitlines()]
    return {t.probe: str(t.request["prompt"]) for t in lines}


def streams_of(folder: Path) -> list[records.StreamRecord]:
    return [records.StreamRecord.model_validate_json(line) for line in (folder / records.RECORDS).read_text().splitlines()]


def measured(ran: Ran) -> list[AttemptMeasurement]:
    return [measure.measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads) for _, folder in ran.sink.done]


class TestOccupiedContext:
    def test_so_many_tokens_are_in_the_cache_by_the_servers_count(self, job: Callable[..., Ran]) -> None:
        bare = {"workload": "numbers", "max_tokens": 16, "probes": 2}
        ran = job(make_spec(engine=ENGINE, points=[FULL, bare]))
        finished = ran.run()
        assert finished.outcome == "completed", finished.error
        prompts = [texts_of(folder) for _, folder in ran.sink.done]
        for attempt in measured(ran):
            full = [p for p in attempt.probes if p.point == "numbers/c1/ctx777/t0"]
            assert {value_of(p.prompt_tokens) for p in full} == {777}  # warm-up at this shape too
            assert {p.warmup for p in full} == {True, False} or len(full) == 2
            assert all((value_of(p.prompt_tokens) or 0) < 60 for p in attempt.probes if p not in full)
        asked = {plan.id: next(i for i in ran.workloads["numbers"].items if i.id == plan.item) for plan in ran.offer.plan.trials[0].probes}
        for plan_id, item in asked.items():
            first, second = (p[plan_id] for p in prompts)
            assert first == second  # the same text in all arms of a block
            assert first.endswith(item.prompt)
        starts = [text.encode()[:64] for plan_id, text in prompts[0].items() if "#" in plan_id]
        assert len(set(starts)) == len(starts)
        analysis = analyse_job(ran.offer.spec, ran.offer.plan, measured(ran), [], JobFacts(), workloads=ran.workloads)
        check = next(c for c in analysis.comparisons[0].checks if c.name == "context occupied")
        assert (check.state, check.kind) == ("passed", "hard")
        assert not any(c.name == "context occupied" for c in analysis.comparisons[1].checks)

    def test_a_prompt_that_is_longer_by_itself_is_refused_by_name(self, job: Callable[..., Ran]) -> None:
        ran = job(make_spec(engine=ENGINE, points=[FULL | {"occupied_context": 5}]))
        ran.run()
        report, _ = ran.sink.done[0]
        assert report.error is not None
        assert "more than the 5 that occupied_context asks for" in report.error.message
        assert "Set occupied_context to 0, or to" in report.error.remedy


def of_task(n: int) -> Item:
    turns = [
        Turn(prompt=f"Count from {n} to {n + 9}:\n", answer=f"{n}\n{n + 1}\n{n + 2}\n", tool_wait_s=0.05),
        Turn(prompt=f"Now from {n + 20}:\n{n + 20}\n{n + 21}\n", answer="done\n", tool_wait_s=0.02, max_tokens=20),
        Turn(rebuild=f"So far we have counted from {n}.\n", prompt=f"Go on at {n + 40}:\n{n + 40}\n{n + 41}\n"),
    ]
    return Item(id=f"task-{n}", turns=turns)


class TestTask:
    @pytest.fixture
    def workload(self) -> Workload:
        return Workload(name="tasks", version=1, title="Tasks", items=[of_task(n) for n in (30, 50, 60)], warmup=[of_task(10)])

    def test_turns_follow_each_other_behind_the_recorded_history(self, job: Callable[..., Ran]) -> None:
        point = {"workload": "tasks", "max_tokens": 24, "probes": 2}
        ran = job(make_spec(engine=ENGINE | {"prefix_cache": True}, points=[point]))
        finished = ran.run()
        assert finished.outcome == "completed", finished.error
        for report, folder in ran.sink.done:
            assert report.error is None
            streams = [s for s in streams_of(folder) if not s.warmup]
            plan = next(t for t in ran.offer.plan.trials if t.id == report.trial)
            assert [(s.item, s.turn) for s in streams] == [(p.item, n) for p in plan.probes for n in (1, 2, 3)]
            assert [sum(e.tokens for e in s.events) for s in streams] == [24, 20, 24] * 2
            waits = [s.waited_s for s in streams]
            assert all(w is not None and w >= scripted for w, scripted in zip(waits, [0, 0.05, 0.02] * 2, strict=True))
            prompts = texts_of(folder)
            for p in plan.probes:
                item = next(i for i in ran.workloads["tasks"].items if i.id == p.item)
                one, two, three = item.turns
                assert prompts[f"{p.id}.1"] == one.prompt
                assert prompts[f"{p.id}.2"] == one.prompt + one.answer + two.prompt  # never the arm's own answer
                assert prompts[f"{p.id}.3"] == f"{three.rebuild}{three.prompt}"
        analysis = analyse_job(ran.offer.spec, ran.offer.plan, measured(ran), [], JobFacts(), workloads=ran.workloads)
        (compared,) = analysis.comparisons
        assert {c.name: c.sentence for c in compared.checks if c.state == "failed" and c.kind == "hard"} == {}
        assert compared.n_prompts == 2
        parts = [value_of(getattr(compared, f"arm_task_{part}")) for part in ("prefill_s", "decode_s", "tool_wait_s", "rest_s")]
        assert all(part is not None for part in parts)
        assert parts[2] is not None
        assert parts[2] >= 0.07
        assert sum(p for p in parts if p) == pytest.approx(value_of(compared.arm_equal_work_s))
        for attempt in measured(ran):
            assert attempt.disagreements == []
            hits = [value_of(p.cache_hit_tokens) or 0 for p in attempt.probes if not p.warmup]
            assert hits[1] > 0  # of the task's own history: no fault
            assert hits[0] < 64  # a first word, if anything


class TestThinking:
    @pytest.fixture
    def template(self) -> str:
        return THINKING_TEMPLATE

    @pytest.fixture
    def thinking_host(self, config: Config, template: str) -> Host:
        """The demo's target with another chat template in its file."""
        entry = config.models[0]
        changed = Path(entry.path).with_name("thinking.gguf")
        with_template(Path(entry.path), changed, template)
        models = [entry.model_copy(update={"path": changed}), *config.models[1:]]
        changed_config = config.model_copy(update={"models": models})
        return take_inventory(changed_config, FileCache(config.state_dir / "files.json"))

    def test_the_prompt_goes_through_the_models_template(self, job: Callable[..., Ran], thinking_host: Host) -> None:
        point = {"workload": "numbers", "max_tokens": 16, "probes": 1}
        points = [point | {"thinking": True}, point | {"thinking": False, "occupied_context": 301}]
        ran = job(make_spec(engine=ENGINE, points=points), on=thinking_host)
        finished = ran.run()
        assert finished.outcome == "completed", finished.error
        for _, folder in ran.sink.done:
            prompts = texts_of(folder)
            on, off = prompts["numbers/c1/ctx0/t0/think#1"], prompts["numbers/c1/ctx301/t0/nothink#1"]
            assert on.startswith("<user>Count from ")
            assert on.endswith("\n<think>\n")
            assert off.startswith("<user>")
            assert off.endswith("\n<think>\n</think>\n")
            thoughts = {s.probe: s.thought for s in streams_of(folder) if not s.warmup}
            assert thoughts["numbers/c1/ctx0/t0/think#1"] == records.Thought(asked=True, opened=True, opens="<think>", ends="</think>")
        for attempt in measured(ran):
            thinking, plain = (next(p for p in attempt.probes if not p.warmup and p.point.endswith(end)) for end in ("/think", "/nothink"))
            assert value_of(plain.prompt_tokens) == 301
            assert isinstance(plain.ttft_content_s, Number)
            assert isinstance(thinking.ttft_any_s, Number)
            assert isinstance(thinking.ttft_content_s, Withheld)  # the small model never ends its thought
            assert thinking.ttft_content_s.reason_code == "no_content"

    def test_a_template_that_knows_no_thinking_is_refused(self, job: Callable[..., Ran]) -> None:
        ran = job(make_spec(points=[{"workload": "numbers", "max_tokens": 16, "probes": 1, "thinking": True}]))
        ran.run()
        report, _ = ran.sink.done[0]
        assert report.error is not None
        assert report.error.code == "thinking_not_possible"
        assert "the same with thinking on and off" in report.error.message

    @pytest.mark.parametrize("template", [""])
    def test_a_model_without_a_template_is_refused_before_anything_starts(self, job: Callable[..., Ran], thinking_host: Host) -> None:
        ran = job(make_spec(points=[{"workload": "numbers", "max_tokens": 16, "thinking": False}]), on=thinking_host)
        with pytest.raises(ThinkingNotPossible, match="target has no chat template"):
            runner.prepare(ran.offer, ran.workloads, thinking_host)
        assert not list(ran.out.rglob(records.LAUNCH))


def with_template(source: Path, target: Path, template: str) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name == "tokenizer.chat_template":
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    if template:
        writer.add_chat_template(template)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_an_engine_that_dies_before_its_prompts_are_made_has_died(job: Callable[..., Ran]) -> None:
    """Another try may help, which it would not for a tokenizer that answers wrongly."""
    ran = job(make_spec(engine=ENGINE, points=[FULL]))
    told = ran.tell

    def kill_once(running: Running) -> None:
        told(running)
        if running.phase == "warm-up" and len(ran.sink.done) == 0:
            for process in psutil.Process().children(recursive=True):
                if "llama-server" in process.name():
                    process.kill()

    ran.tell = kill_once
    assert ran.run().outcome == "completed"
    first = ran.sink.done[0][0]
    assert first.error is not None
    assert (first.error.code, first.error.retry) == ("engine_died", True)
    assert [r.outcome for r, _ in ran.sink.done[1:]] == ["ok", "ok"]
