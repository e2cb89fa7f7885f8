"""What llama-server's log tells: memory, speculation, each request, and why a start failed."""

from __future__ import annotations

import pytest

from tests.core.recordings import LLAMA, read


def test_memory_of_target_and_draft_apart() -> None:
    facts = LLAMA.parse_log(read("b10434-draft4-lv4.log"))
    assert facts.memory_mib == {
        "target model AMX": 4.23,
        "target model CPU_Mapped": 2.98,
        "target output CPU": 0.01,
        "target KV CPU": 8.0,
        "target compute CPU": 8.14,
        "draft model AMX": 0.35,
        "draft model CPU_Mapped": 0.2,
        "draft output CPU": 0.01,
        "draft KV CPU": 0.75,
        "draft compute CPU": 3.14,
    }
    assert facts.build == "1 (7e4c0a9) with GNU 11.4.0 for Linux x86_64"
    assert facts.backend_devices == ["CPU"]
    assert (facts.n_slots, facts.context_per_slot, facts.layers_offloaded) == (1, 2048, "5/5")


def test_a_helper_inside_the_target_has_its_own_cache() -> None:
    memory = LLAMA.parse_log(read("b11434-mtp-n2.log")).memory_mib
    assert memory["target KV CPU"] == 23.0
    assert memory["target RS CPU"] == 0.21
    assert memory["draft KV CPU"] == 1.0
    assert memory["draft compute CPU"] == 35.52  # reserved twice, held once


@pytest.mark.parametrize(
    ("case", "speculation"),
    [
        ("b10434-draft4-lv4", "draft-simple"),
        ("b10434-ngram-simple-lv4", "ngram-simple"),
        ("b11434-ngram-mod-and-draft-lv4", "ngram-mod,draft-simple"),
        ("b11434-mtp-n5", "draft-mtp"),
        ("b11434-mtp-n0", ""),
        ("b10434-off", ""),
    ],
)
def test_speculation_that_was_set_up(case: str, speculation: str) -> None:
    facts = LLAMA.parse_log(read(f"{case}.log"))
    assert facts.speculation == speculation
    assert facts.error == ""
    if speculation:
        line = read(f"{case}.log").splitlines()[facts.speculation_line - 1]
        assert speculation.split(",")[0] in line


def test_draft_acceptance_by_request_with_its_line() -> None:
    text = read("b10434-draft4-lv4.log")
    rows = LLAMA.parse_log(text).draft_acceptance
    assert [(r["accepted"], r["drafted"], r["mean_length"]) for r in rows] == [(34, 116, 2.17), (34, 116, 2.17)]
    assert rows[0]["rate_by_position"] == [0.448, 0.345, 0.207, 0.172]
    assert "34 accepted /   116 generated" in text.splitlines()[rows[0]["line"] - 1]


def test_cumulative_statistics_become_the_requests_own() -> None:
    requests = LLAMA.log_requests(read("b10434-draft4-lv4.log"))
    assert [r.verify_steps for r in requests] == [29, 0, 29]
    assert [r.draft_ms for r in requests] == [22.955, 0.0, 19.374]
    assert [(r.prompt_tokens, r.tokens) for r in requests] == [(32, 64), (7, 1), (32, 64)]
    both = LLAMA.log_requests(read("b11434-ngram-mod-and-draft-lv4.log"))
    assert [r.verify_steps for r in both] == [32, 0, 14]  # two drafters, each with a line of its own
    mtp = LLAMA.log_requests(read("b10434-mtp-n2.log"))
    assert [r.verify_steps for r in mtp] == [6, 53, 54, 54, 55, 53, 55, 105, 95, 99]
    assert all(r.verify_steps * 2 >= r.drafted for r in mtp)  # the limit was two


def test_default_verbosity_has_acceptance_and_no_statistics() -> None:
    requests = LLAMA.log_requests(read("b10434-draft4.log"))
    assert [r.drafted for r in requests] == [116, None, 116]
    assert [r.draft_ms for r in requests] == [None, None, None]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("draft acceptance rate = 0.75000 (    9 accepted /    12 generated)", (9, 12, None)),
        ("draft acceptance = 0.75000 (    9 accepted /    12 generated), mean acceptance length =  2.50", (9, 12, 2.5)),
        ("draft acceptance = 0.75000 (    9 accepted /    12 generated), mean len =  2.50", (9, 12, 2.5)),
        ("draft tokens kept: 9 of 12", (None, None, None)),
    ],
)
def test_each_wording_of_draft_acceptance(line: str, expected: tuple[int | None, int | None, float | None]) -> None:
    text = f"slot print_timing: id 0 | task 0 | prompt eval time = 3.69 ms / 32 tokens (0.12 ms per token)\nslot print_timing: {line}\n"
    request = LLAMA.log_requests(text)[0]
    assert (request.accepted, request.drafted, request.mean_length) == expected


def test_healthy_server_without_its_drafter_has_the_reason() -> None:
    for build, number in (("b10434", 12), ("b11434", 9)):
        facts = LLAMA.parse_log(read(f"{build}-vocab-mismatch.log"))
        assert facts.error_code == "vocab_mismatch"
        assert facts.error.endswith("draft model vocab type must match target model to use speculation")
        assert facts.error_line == number


def test_words_of_a_prompt_are_no_fault() -> None:
    loaded = read("b10434-off.log")
    assert LLAMA.parse_log(loaded + "CUDA ran out of memory, said the prompt\n").error_code == ""
    assert LLAMA.parse_log(loaded + "1.00.000.000 I slot: prompt: 'failed to allocate'\n").error_code == ""
    assert LLAMA.parse_log(loaded + "1.00.000.000 W load: failed to allocate 2 MiB of pinned memory\n").error_code == ""
    assert LLAMA.parse_log(loaded + "1.00.000.000 E ggml_cuda: out of memory\n").error_code == "engine_out_of_memory"
    assert (
        LLAMA.parse_log(loaded + "terminate called after throwing an instance of 'std::bad_alloc'\n").error_code == "engine_out_of_memory"
    )


def test_empty_log() -> None:
    assert LLAMA.parse_log("").model_dump(exclude_defaults=True) == {}
    assert LLAMA.log_requests("") == []


@pytest.mark.parametrize(
    ("case", "code", "said", "line"),
    [
        ("b10434-missing-model", "model_file_missing", "failed to open GGUF file 'nowhere.gguf'", 8),
        ("b11434-missing-model", "model_file_missing", "failed to open GGUF file 'nowhere.gguf'", 5),
        ("b10434-mtp-without-head", "head_missing", "model doesn't contain MTP layers", 11),
        ("b11434-mtp-without-head", "head_missing", "model doesn't contain MTP layers", 8),
        ("b10434-old-flag-draft-max", "flag_refused", 'argument "--draft-max": the argument has been removed', 1),
        ("b10434-unknown-flag", "flag_refused", "invalid argument: --no-such-flag", 1),
        ("b10434-bad-value", "flag_refused", "Unsupported cache type: q9", 1),
        ("b10434-out-of-memory", "engine_out_of_memory", "attempted to allocate 7813.00 MB", 10),
        ("b10434-port-in-use", "port_unavailable", "couldn't bind HTTP server socket", 7),
        ("b10434-vocab-mismatch", "vocab_mismatch", "draft model vocab type must match", 12),
    ],
)
def test_start_failure_is_typed_and_cites_the_log(case: str, code: str, said: str, line: int) -> None:
    text = read(f"{case}.log")
    body = LLAMA.start_failure(text, 1).body()
    assert body.code == code
    assert said in body.message
    assert body.remedy
    assert body.details["line"] == line
    assert body.details["log"] == text.splitlines()[line - 1]
    assert body.details["exit_code"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
        "ggml_vulkan: Device memory allocation of size 2147483648 failed: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "llama_kv_cache: failed to allocate buffer for kv cache",
        "  what():  std::bad_alloc",
        "0.00.002.000 E srv: failed to create MTP context\n0.00.002.000 E ggml_aligned_malloc: insufficient memory",
    ],
)
def test_each_wording_of_no_memory(words: str) -> None:
    error = LLAMA.start_failure(f"0.00.001.000 I srv: loading\n{words}\n", 1)
    assert error.code == "engine_out_of_memory"
    assert "gpu_layers" in error.body().remedy


def test_failures_without_a_known_reason() -> None:
    killed = LLAMA.start_failure("0.00.001.000 I srv: loading\n", -9)
    assert (killed.code, killed.body().retry) == ("engine_killed_at_start", True)  # somebody's hand: no word on memory
    assert "signal 9" in killed.message
    by_kernel = LLAMA.start_failure("0.00.001.000 I srv: loading\n", -9, kernel_oom=True)
    assert (by_kernel.code, by_kernel.body().retry) == ("engine_out_of_memory", False)
    assert "the kernel killed" in by_kernel.message
    silent = LLAMA.start_failure("", -11)
    assert silent.code == "engine_exited_at_start"
    assert "code -11, and its log is empty" in silent.message
    other = LLAMA.start_failure("0.00.001.000 I a: b\n0.00.002.000 E a: something new\n0.00.003.000 I a: cleaning up\n", 1)
    assert (other.code, other.details["line"]) == ("engine_exited_at_start", 2)
    assert "a: something new" in other.message
    slow = LLAMA.start_failure("0.00.001.000 I srv: loading\n", None)
    assert (slow.code, slow.body().retry) == ("engine_not_healthy", True)
    assert "loading" in slow.message


def test_a_death_in_a_probe_is_for_want_of_memory_only_with_a_sign_of_it() -> None:
    loaded = "0.00.001.000 I srv  llama_server: model loaded\n"
    assert LLAMA.memory_fault(loaded, -9) is None
    assert LLAMA.memory_fault(loaded, -11, kernel_oom=True) is None  # a crash of its own while another was killed
    by_kernel = LLAMA.memory_fault(loaded, -9, kernel_oom=True)
    assert by_kernel is not None
    assert by_kernel.code == "engine_out_of_memory"
    told = LLAMA.memory_fault(f"{loaded}0.00.002.000 E ggml_cuda: CUDA error: out of memory\n", -6)
    assert told is not None
    assert told.details["line"] == 2
