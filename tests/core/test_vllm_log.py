"""What vLLM's log tells: version, method, memory, what it settled by itself, in several wordings; and why a start failed."""

from __future__ import annotations

import pytest

from tests.core.vllm_recordings import ARMS, VLLM, read

#: Wordings of a GPU, and of builds before 0.32.
_GPU = "INFO 03-02 10:11:12 [core.py:58] Initializing a V1 LLM engine (v0.11.0) with config: model='m', speculative_config={spec}, dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, quantization=fp8, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, enable_prefix_caching=True, compilation_config={{'mode': <CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'cudagraph_capture_sizes': [1, 2, 4, 8], 'max_cudagraph_capture_size': 8}}"


def gpu_log(spec: str, *lines: str) -> str:
    return "\n".join([_GPU.format(spec=spec), *lines]) + "\n"


@pytest.mark.parametrize("case", list(ARMS))
def test_a_recorded_log(case: str) -> None:
    text = read(f"asked-{case}.log")
    facts = VLLM.parse_log(text)
    assert (facts.build, facts.backend_devices, facts.devices) == ("0.32.0", ["cpu"], [])
    assert (facts.context_per_slot, facts.n_slots) == (1024, 4)
    assert facts.error == ""
    assert facts.speculation == ("" if case == "off" else VLLM.SPEC_TYPES[ARMS[case]["mode"]])
    assert facts.speculation_line is not None
    assert "speculative_config=" in text.split("\n")[facts.speculation_line - 1]
    assert facts.memory_mib == {"KV cpu": 1024.0}
    assert {name: facts.settled[name] for name in ("dtype", "prefix_caching", "max_model_len", "eager")} == {
        "dtype": "float32",
        "prefix_caching": "off",
        "max_model_len": 1024.0,
        "eager": "on",
    }


@pytest.mark.parametrize(
    ("case", "tokens", "asynchronous", "budget"),
    [
        ("off", 131072, None, None),
        ("ngram4", 131072, "off", 2048),
        ("suffix16", 131072, "off", 2048),
        ("draft3", 116480, None, 2048),
        ("eagle3", 104832, None, 2048),
        ("mtp1", 104832, None, 2048),
    ],
)
def test_what_the_engine_settles_by_itself_with_its_lines(case: str, tokens: int, asynchronous: str | None, budget: int | None) -> None:
    text = read(f"asked-{case}.log")
    facts = VLLM.parse_log(text)
    settled = facts.settled
    assert settled["kv_cache_tokens"] == tokens
    assert settled["kv_cache_bytes"] == 2**30
    assert settled.get("async_scheduling") == asynchronous
    assert settled.get("max_num_scheduled_tokens") == budget
    assert settled.keys() == facts.settled_lines.keys()
    lines = text.split("\n")
    assert f"KV cache size: {tokens:,} tokens" in lines[facts.settled_lines["kv_cache_tokens"] - 1]
    if asynchronous:
        assert "Async scheduling not supported" in lines[facts.settled_lines["async_scheduling"] - 1]


def test_a_gpus_wordings() -> None:
    facts = VLLM.parse_log(
        gpu_log(
            "None",
            "(Worker_TP0 pid=7) INFO 03-02 10:11:20 [gpu_model_runner.py:2653] Model loading took 14.9888 GiB memory and 3.4 seconds",
            "(Worker_TP1 pid=8) INFO 03-02 10:11:20 [gpu_model_runner.py:2653] Model loading took 14.9888 GiB memory and 3.6 seconds",
            "(Worker_TP0 pid=7) INFO 03-02 10:11:20 [cuda.py:366] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
            "(Worker_TP0 pid=7) INFO 03-02 10:11:30 [gpu_worker.py:298] Available KV cache memory: 20.50 GiB",
            "(Worker_TP1 pid=8) INFO 03-02 10:11:30 [gpu_worker.py:298] Available KV cache memory: 20.25 GiB",
            "(EngineCore_DP0 pid=6) INFO 03-02 10:11:30 [kv_cache_utils.py:1087] GPU KV cache size: 671,088 tokens",
            "(EngineCore_DP0 pid=6) INFO 03-02 10:11:30 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 81.92x",
            "(Worker_TP0 pid=7) INFO 03-02 10:11:40 [gpu_model_runner.py:3480] Graph capturing finished in 8 secs, took 0.62 GiB",
            "INFO 03-02 10:11:10 [scheduler.py:216] Chunked prefill is enabled with max_num_batched_tokens=8192.",
            "INFO 03-02 10:11:10 [scheduler.py:219] Asynchronous scheduling is enabled.",
        )
    )
    assert (facts.build, facts.devices) == ("0.11.0", ["cuda"])
    assert facts.memory_mib == {"model cuda": 30697.06, "KV cuda": 41728.0, "graphs cuda": 634.88}
    expected = {
        "kv_cache_tokens": 671088.0,
        "kv_cache_bytes": 40.75 * 2**30,
        "max_concurrency": 81.92,
        "max_num_batched_tokens": 8192.0,
        "async_scheduling": "on",
        "attention_backend": "FLASH_ATTN",
        "graph_mode": "full_and_piecewise",
        "graph_sizes": "1, 2, 4, 8",
        "graph_largest": 8.0,
        "compile_mode": "vllm_compile",
        "quantization": "fp8",
        "dtype": "bfloat16",
        "tensor_parallel": 2.0,
    }
    assert {name: facts.settled[name] for name in expected} == expected


def test_a_cache_whose_size_was_asked_for_is_told_by_another_line() -> None:
    said = "Initial free memory 78.61 GiB, reserved 20.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes config and skipped"
    facts = VLLM.parse_log(gpu_log("None", f"(EngineCore_DP0 pid=6) INFO 03-02 10:11:30 [gpu_worker.py:675] {said} memory profiling."))
    assert facts.settled["kv_cache_bytes"] == 20 * 2**30
    assert facts.memory_mib["KV cuda"] == 20480


@pytest.mark.parametrize(
    ("spec", "method"),
    [
        ("None", ""),
        ("SpeculativeConfig(method='eagle3', model='e', num_spec_tokens=3)", "eagle3"),
        ("SpeculativeConfig(method=ngram, num_spec_tokens=3)", "ngram"),
    ],
)
def test_each_wording_of_the_method(spec: str, method: str) -> None:
    facts = VLLM.parse_log(gpu_log(spec))
    assert (facts.speculation, facts.speculation_line) == (method, 1)


def test_an_unknown_format_gives_nothing() -> None:
    facts = VLLM.parse_log("2027-01-01 engine: config follows\nkv: 99 tokens of cache\nasync: no\n")
    assert facts.model_dump(exclude_defaults=True) == {}
    assert VLLM.parse_log("").model_dump(exclude_defaults=True) == {}
    assert VLLM.log_requests(read("asked-draft3.log")) == []
    changed = read("asked-draft3.log").replace("KV cache size:", "KV cache holds").replace("Initializing a V1 LLM engine", "Hello from")
    assert "kv_cache_tokens" not in VLLM.parse_log(changed).settled
    assert VLLM.parse_log(changed).speculation_line is None


def test_the_sums_of_ten_seconds_are_kept_with_their_lines() -> None:
    [told] = VLLM.parse_log(read("ngram4.log")).draft_acceptance
    assert (told["drafted"], told["accepted"]) == (426, 279)
    assert "SpecDecoding metrics" in read("ngram4.log").split("\n")[told["line"] - 1]


@pytest.mark.parametrize(
    ("case", "code", "said", "line"),
    [
        ("unknown-flag", "flag_refused", "unrecognized arguments: --no-such-flag 3", 5),
        ("bad-value", "flag_refused", "argument --kv-cache-dtype: invalid choice: 'q9'", 3),
        ("port-in-use", "port_unavailable", "Address already in use", 38),
        ("kv-over-memory", "engine_out_of_memory", "less than requested memory for kv (100.0 GiB)", 56),
        ("mtp-without-head", "head_missing", "Unsupported speculative method: 'mtp'", 57),
        ("unknown-method", "flag_refused", "Input should be 'ngram', 'medusa'", 55),
        ("missing-model", "model_file_missing", "Cannot find an appropriate cached snapshot folder", 62),
        ("remote-code", "spec_invalid", "contains custom code which must be executed", 10),
        ("unknown-architecture", "spec_invalid", "Model architectures ['NoSuchForCausalLM'] are not supported", 52),
        ("broken-install", "engine_exited_at_start", "operator torchvision::nms does not exist", 42),
    ],
)
def test_a_start_failure_is_typed_and_cites_the_log(case: str, code: str, said: str, line: int) -> None:
    text = read(f"fails-{case}.log")
    body = VLLM.start_failure(text, 1).body()
    assert body.code == code
    assert said in body.message
    assert len(body.message) < 400
    assert body.remedy
    assert (body.details["line"], body.details["exit_code"]) == (line, 1)
    assert body.details["log"] == text.split("\n")[line - 1]
    assert VLLM.parse_log(text).error_code == code


def test_remedies_name_what_to_do() -> None:
    assert "uninstall" in VLLM.start_failure(read("fails-broken-install.log"), 1).body().remedy
    assert "--trust-remote-code" in VLLM.start_failure(read("fails-remote-code.log"), 1).body().remedy
    assert "VLLM_CPU_KVCACHE_SPACE" in VLLM.start_failure(read("fails-kv-over-memory.log"), 1).body().remedy


@pytest.mark.parametrize(
    "words",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.12 GiB).",
        "ValueError: Free memory on device cuda:0 (3.1/23.6 GiB) on startup is less than desired GPU memory utilization (0.92, 21.7 GiB).",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.",
        "ValueError: The model's max seq len (8192) in the KV cache is larger than the maximum number of tokens that can be stored (512).",
    ],
)
def test_each_wording_of_no_memory(words: str) -> None:
    inside = f"(EngineCore pid=9) ERROR 11-30 05:09:40 [core.py:999] {words}"
    assert VLLM.start_failure(f"{read('asked-off.log').split('Starting vLLM')[0]}\n{inside}\n", 1).code == "engine_out_of_memory"
    assert VLLM.start_failure(words, 1).code == "engine_out_of_memory"


def test_the_cause_is_told_and_not_that_another_process_died_of_it() -> None:
    text = (
        "(EngineCore pid=9) ERROR 11-30 05:09:40 [core.py:999] EngineCore failed to start.\n"
        "(EngineCore pid=9) ERROR 11-30 05:09:40 [core.py:999] Traceback (most recent call last):\n"
        '(EngineCore pid=9) ERROR 11-30 05:09:40 [core.py:999]   File "core.py", line 12, in run\n'
        "(EngineCore pid=9) ERROR 11-30 05:09:40 [core.py:999]     raise KeyError('MemoryError: of a source line')\n"
        "(EngineCore pid=9) ERROR 11-30 05:09:40 [core.py:999] KeyError: 'layers.4'\n"
        "(APIServer pid=8) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    failure = VLLM.start_failure(text, 1)
    assert (failure.code, failure.details["line"]) == ("engine_exited_at_start", 5)
    assert failure.message == "vLLM exited with code 1: KeyError: 'layers.4'"


def test_words_of_others_are_no_fault() -> None:
    loaded = read("asked-off.log")
    assert VLLM.parse_log(loaded + "torch.OutOfMemoryError: said the prompt\n").error_code == ""
    assert VLLM.parse_log(loaded + "(APIServer pid=1) INFO 11-30 05:09:40 [x.py:1] prompt: 'CUDA out of memory'\n").error_code == ""
    died = VLLM.memory_fault(loaded + "(EngineCore pid=1) ERROR 11-30 05:09:40 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.\n", 1)
    assert died is not None
    assert died.code == "engine_out_of_memory"
    assert VLLM.memory_fault(loaded, -9) is None
    by_kernel = VLLM.memory_fault(loaded, -9, kernel_oom=True)
    assert by_kernel is not None
    assert "the kernel killed vLLM" in by_kernel.message


def test_failures_without_a_known_reason() -> None:
    assert VLLM.start_failure("", -11).message == "vLLM exited with code -11, and its log is empty"
    assert VLLM.start_failure("INFO 11-30 05:09:40 [x.py:1] loading\n", -9).code == "engine_killed_at_start"
    slow = VLLM.start_failure("INFO 11-30 05:09:40 [x.py:1] loading\n", None)
    assert (slow.code, slow.body().retry, slow.message) == (
        "engine_not_healthy",
        True,
        "vLLM did not become healthy in time; last in its log: loading",
    )
