"""Experiments on a real vLLM, on the processor: `make test-vllm`. Not among the tests of `make test`."""
