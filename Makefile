# demo · test · check · bench · chaos · up. CI runs the same. Paths are relative and quoted: a clone may lie in a path with spaces.
# Variables of `make demo`: RUN=1 ONCE=1 OUT= PORT= SPECWEB_HOME= LLAMA_SERVER= DATABASE_URL= BROKER_URL= EXPERIMENT=
# PYTHON= (see README).

PYTHON ?= python3
IN_VENV := .venv/bin/python
TESTS ?= tests

.DEFAULT_GOAL := demo
.NOTPARALLEL:
.PHONY: demo test test-docker test-vllm check format bench bench-probe bench-coverage bench-aa bench-synthetic bench-sequential bench-web bench-watch chaos fuzz-api up environment python

# Without an interpreter nothing else can say what is missing.
python:
	@command -v "$(PYTHON)" >/dev/null || { echo "preflight: $(PYTHON) is not there." >&2; \
	  echo "    mend it:  apt-get update && apt-get install -y python3 python3-venv    # or make demo PYTHON=/path/to/python3.11" >&2; exit 1; }

demo: python
	@$(PYTHON) demo/preflight.py demo
	@$(PYTHON) demo/environment.py
	@$(IN_VENV) -m demo.run

environment: python
	@$(PYTHON) demo/preflight.py tools
	@$(PYTHON) demo/environment.py

# Two at a time, each with servers of its own; given ones are shared, so that one must do.
test: environment
	$(IN_VENV) -m pytest $(if $(DATABASE_URL)$(BROKER_URL),,-n $(or $(PROCESSES),2) --dist loadfile) $(TESTS)

# Engines in containers, with a dockerd of their own; needs root and Debian's docker.io. ARGS= : what pytest gets.
test-docker: environment
	$(IN_VENV) -m tests.docker $(ARGS)

# Real experiments on vLLM, on the processor, in an environment of its own (.vllm-env, or SPECWEB_VLLM_ENV=): about 20 minutes and
# 8 GB of disk the first time. ARGS= : what pytest gets.
test-vllm: environment
	$(IN_VENV) -m tests.vllm $(ARGS)

check: environment
	$(IN_VENV) -m ruff format --check .
	$(IN_VENV) -m ruff check .
	$(IN_VENV) -m mypy
	@# Only the models are compared with the migrations, so no server is needed.
	DEBUG=1 DATABASE_URL=postgres://nowhere/none BROKER_URL=redis://nowhere $(IN_VENV) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(IN_VENV) -m compileall -q agent specweb workers demo bench tests manage.py

format: environment
	$(IN_VENV) -m ruff format .
	$(IN_VENV) -m ruff check --fix .

# EXAMPLES= SEED= : more requests drawn from the API's schema than the tests draw.
fuzz-api: environment
	SPECWEB_FUZZ_EXAMPLES=$(or $(EXAMPLES),100) SPECWEB_FUZZ_SEED=$(or $(SEED),$$(date +%s)) $(IN_VENV) -m pytest -q tests/web/test_api_fuzz.py

bench: environment
	$(IN_VENV) -m bench

# OUT= CLIENTS= STREAMS= DETAILS= : our client beside its peers, each of which gets an environment of its own from PyPI.
bench-probe: environment
	$(IN_VENV) -m bench.probe $(if $(CLIENTS),--clients "$(CLIENTS)") $(if $(STREAMS),--streams "$(STREAMS)") \
	  $(if $(OUT),--out "$(OUT)") $(if $(DETAILS),--details "$(DETAILS)")

# OUT= N= : simulated experiments with known ratio through the statistics; exits with 1 where an interval covers too rarely.
bench-coverage: environment
	OMP_NUM_THREADS=1 $(IN_VENV) -m bench.coverage $(if $(N),--n $(N)) $(if $(OUT),--out "$(OUT)")

# OUT= N= CONDITION=quiet|bursty : the baseline against itself on a real llama-server; best on a machine with nothing else to do.
bench-aa: environment
	$(IN_VENV) -m bench.aa $(if $(N),--n $(N)) $(if $(CONDITION),--condition $(CONDITION)) $(if $(OUT),--out "$(OUT)")

# OUT= N= REAL= : what early looks save, simulated; REAL=2 also two experiments on the demo's models.
bench-sequential: environment
	OMP_NUM_THREADS=1 $(IN_VENV) -m bench.time_to_decide $(if $(N),--n $(N)) $(if $(REAL),--real $(REAL)) $(if $(OUT),--out "$(OUT)")

# OUT= : counted against asked acceptance, where the build that LLAMA_SERVER names can be told what to accept.
bench-synthetic: environment
	$(IN_VENV) -m bench.synthetic $(if $(OUT),--out "$(OUT)")

# OUT= ATTEMPTS=1000000 SEED= : the pages over a database with so many trials, beside the same with 10,000; on a machine with nothing
# else to do, with 20 GB of free disk.
bench-web: environment
	$(IN_VENV) -m bench.web $(if $(ATTEMPTS),--attempts $(ATTEMPTS)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out "$(OUT)")

# OUT= N= : how often a watch's alert is false, and how soon it finds a change, simulated (a minute).
bench-watch: environment
	$(IN_VENV) -m bench.watching $(if $(N),--n $(N)) $(if $(OUT),--out "$(OUT)")

# RUNS= SEED= OUT= : random faults on the small models; the result as JSON.
chaos: environment
	$(IN_VENV) -m tests.chaos $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out "$(OUT)")

up:
	docker compose up --build
