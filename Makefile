# Needs Python 3.11 or later and a shell; everything else goes into .venv.
# PYTHON=/path/to/python3.12 make setup   chooses another Python.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules

# Where bytecode is not kept, each of the many processes that tests start compiles the program anew.
unexport PYTHONDONTWRITEBYTECODE

# The first Python on PATH that is new enough; empty if there is none. It is looked for once.
PYTHON ?= $(eval PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$python"; break; }; done))$(PYTHON)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Stamps: .venv has what the program needs; .venv has everything, tests and tools included.
RUNTIME := .venv/.runtime
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest
# Each process imports all tests: without those that all need servers, in three quarters of the time.
SPREAD := -n auto --dist worksteal --ignore tests/services
PLAIN := tests/property $(addprefix tests/unit/test_, bad_input.py contract.py examples.py regressions.py)
CODE := setup.py stream_metrics client deploy docs examples tests kernel $(wildcard benchmarks)

# The compiled kernel, beside the sources that use it, and what it is made from. cargo comes from
# PATH, or from where rustup puts it.
KERNEL := stream_metrics/_engine.so
KERNEL_SOURCES := $(shell find kernel/src -name '*.rs') kernel/Cargo.toml kernel/Cargo.lock
TOOLS := env PATH="$(CURDIR)/$(BIN):$(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin"

# The wheel as it is shipped, with all that can be compiled, in a folder of its own: the stamp of its
# last installation, and what it is made from. The sources of the tree run wherever that folder is
# not on the path. What starts with RUN has it on the path, if it could be built, and so have its
# child processes: PYTHONSAFEPATH keeps their working directory from coming first.
COMPILED := .venv/.compiled
COMPILED_SOURCES := setup.py pyproject.toml $(KERNEL_SOURCES) \
	$(shell find stream_metrics -type f -not -name '*.pyc' -not -name '*.so')
RUN := env PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/.venv/compiled:$(CURDIR):$(CURDIR)/client/src" $(BIN)/python
TEST := $(RUN) -m pytest --override-ini "pythonpath=.venv/compiled . client/src"

PIN := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-config --quiet --custom-compile-command "make lock"

.PHONY: help setup demo build test test-all test-fast test-unit test-services test-client test-spark check check-types check-lint format stack collector agent bench bench-replay bounds bridge-campaign serve-campaign neighbours outages peers profile services bench-spark \
	tools kernel dashboards panels docs docs-site lock dist clean campaign mutations conformance fuzz drill calibration label-calibration

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Install everything, pinned, into .venv; compile nothing

# setuptools, which the editable installation needs, is pinned with the tools for development.
$(RUNTIME): pyproject.toml constraints.txt deploy/docker/requirements.txt
	@if [ ! -x $(BIN)/python ]; then \
		if [ -z "$(PYTHON)" ]; then \
			echo "error: no Python 3.11 or later on PATH (python3 is: $$(python3 --version 2>&1 || true))." >&2; \
			echo "Install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1; \
		fi; \
		if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
			echo "error: $(PYTHON) cannot make virtual environments (no venv or ensurepip)." >&2; \
			echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
		fi; \
		$(PYTHON) -m venv .venv; \
	fi
	@if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "error: .venv has $$($(BIN)/python --version), 3.11 or later is needed; make clean removes it." >&2; exit 1; \
	fi
	@echo "installing the program into .venv (a quarter of a minute)"
	@$(PIP) install --quiet --no-deps --require-hashes -r deploy/docker/requirements.txt \
		-r <(sed -n '/^setuptools==/,/[^\\]$$/p' constraints.txt)
	@STREAM_METRICS_BUILD=python $(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(RUNTIME)
	@echo "installing the tools for development into .venv (half a minute)"
	@$(PIP) install --quiet --require-hashes -r constraints.txt
	@touch $@

kernel: $(READY) ## Compile the kernel and the engine; install missing compilers first
	@$(TOOLS) python -m deploy.local compiler || { \
		echo "or get one from https://rustup.rs" >&2; exit 1; \
	}
	@$(MAKE) $(KERNEL) $(COMPILED)

# The soft way, for targets that also work without: compile with the compilers that are here.
build: $(READY)
	@$(MAKE) $(KERNEL) || { \
		rm -f $(KERNEL); echo "Python code runs instead of the kernel (make kernel installs compilers)"; \
	}
	@$(MAKE) $(COMPILED) || { \
		rm -rf .venv/compiled; echo "modules run as Python (make kernel installs compilers)"; \
	}

# What measures, or runs a live system, uses all that can be compiled.
stack bench bench-replay bounds calibration campaign drill mutations panels profile bridge-campaign neighbours outages test-services: build

# What C compilers made stays in the folder build, so that a change of Rust compiles no module again.
$(COMPILED): $(COMPILED_SOURCES) | $(READY)
	@echo "compiling everything (two minutes the first time)"
	@rm -rf .venv/compiled .venv/wheels
	@find build/lib* -type f -not -name '*.so' -delete 2>/dev/null || true
	@STREAM_METRICS_BUILD=compiled $(TOOLS) python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir .venv/wheels . >.venv/compiled.log 2>&1 || { \
		tail -n 30 .venv/compiled.log >&2; exit 1; \
	}
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target .venv/compiled \
		.venv/wheels/*.whl
	@touch $@

$(KERNEL): $(KERNEL_SOURCES) | $(READY)
	@echo "building the compiled kernel (half a minute the first time)"
	@rm -f stream_metrics/_engine*.so
	@STREAM_METRICS_BUILD=compiled $(TOOLS) python setup.py build_rust --inplace \
		>.venv/kernel.log 2>&1 || { tail -n 30 .venv/kernel.log >&2; exit 1; }
	@mv stream_metrics/_engine.*.so $@
	@touch $@

# DEMO has options, such as DEMO="--port 0", which picks a free port.
demo: $(RUNTIME) ## Play a recorded day; watch it in the terminal and in the browser
	@STREAM_METRICS_KERNEL=python $(BIN)/stream-metrics demo $(DEMO)

services: setup ## Install Kafka, Redis, Prometheus and Alertmanager if they are missing
	@$(BIN)/python -m deploy.local install

tools: setup ## Install everything that tests need if it is missing: servers, Chromium, Go
	@$(BIN)/python -m deploy.local install --tests

# Marks choose the tests; tests/conftest.py says what they mean. Each test is in `test` or in `test-all`.
test-fast: $(READY) ## Run lint and the quick tests, without compilers and servers; a minute
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet $(CODE)
	@HYPOTHESIS_PROFILE=fast $(PYTEST) -m "not service and not long and not slow" $(SPREAD) \
		--durations 10 --durations-min 2

test: kernel tools check test-unit test-services ## Run checks, unit tests, and each claim on real servers once

# Properties have few examples here: test-all tries each of them with many.
test-unit: kernel ## Run the tests that need no server
	@NEED_COMPILED=yes HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-fast} $(TEST) -m "not service and not long" $(SPREAD)

# Tests on servers wait as much as they compute, so there are more processes than cores.
test-services: tools ## Run the tests on real servers
	@$(TEST) -m "service and not long" -n 4 --dist loadfile --no-loadscope-reorder --durations 15

test-all: kernel tools chart-tools agent .venv/dist/.ready test-client test-spark ## Run what `test` leaves out: longer properties, without the kernel, more cases on servers
	@NEED_COMPILED=yes HYPOTHESIS_PROFILE=long $(TEST) -m "not service and (long or hypothesis)" $(SPREAD)
	@echo "as Python:"
	@STREAM_METRICS_KERNEL=python HYPOTHESIS_PROFILE=fast $(PYTEST) -m "not service and not long" $(SPREAD) --quiet $(PLAIN)
	@$(TEST) -m "service and long" -n 5 --dist loadfile --no-loadscope-reorder --durations 15

# The client as it is installed, beside the frameworks that its handlers are for.
.venv/client/.ready: client/pyproject.toml client/README.md client/tests/requirements.txt $(shell find client/src -name '*.py') | $(READY)
	@echo "installing LangChain, LlamaIndex, the Kafka clients and stream-metrics-client"
	@$(BIN)/python -m venv .venv/client
	@.venv/client/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r client/tests/requirements.txt
	@rm -rf .venv/client/wheels client/build
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir .venv/client/wheels ./client
	@.venv/client/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall \
		.venv/client/wheels/*.whl
	@touch $@

test-client: .venv/client/.ready tools ## Test stream-metrics-client with real frameworks, and each Kafka client
	@$(BIN)/python -m client.tests .venv/client/bin/python --quiet

# Spark has an environment of its own: it is large, and has its own ideas of pandas.
.venv/spark/.ready: tests/spark/requirements.txt | $(READY)
	@echo "installing Apache Spark (a minute)"
	@$(BIN)/python -m venv .venv/spark
	@.venv/spark/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

SPARK := env PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/.venv/compiled:$(CURDIR):$(CURDIR)/client/src" .venv/spark/bin/python

test-spark: .venv/spark/.ready tools ## Test replays on Apache Spark, with threads and with a cluster of two executors
	@$(SPARK) -m pytest -c tests/spark/pytest.ini --rootdir . --confcutdir tests/spark -p no:cacheprovider --quiet tests/spark

# Types take longest where no cache is warm, so the rest is checked beside them.
check: setup ## Check formatting, lint, types and import rules
	@$(MAKE) --jobs=2 check-types check-lint

check-types:
	@$(BIN)/mypy

check-lint:
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/lint-imports
	@cd kernel; if $(TOOLS) cargo fmt --version >/dev/null 2>&1; then \
		$(TOOLS) cargo fmt --check || { echo "run: make format" >&2; exit 1; }; \
	else echo "skipped: cargo fmt is not installed"; fi
	@cd kernel; if $(TOOLS) cargo clippy --version >/dev/null 2>&1; then \
		$(TOOLS) cargo clippy --quiet --locked -- -D warnings; \
	else echo "skipped: cargo clippy is not installed"; fi

format: setup ## Format the code, and fix what the linter can fix
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)
	@cd kernel; if $(TOOLS) cargo fmt --version >/dev/null 2>&1; then $(TOOLS) cargo fmt; fi

# TRAFFIC=otel takes the place of generated events: an agent of LangGraph whose traces go through an
# OpenTelemetry Collector and the bridge. STACK has options: STACK="--keep" leaves data and logs, and
# STACK="--folder DIR" has them in that folder and goes on with what an earlier stack left there.
TRAFFIC ?= generated
stack: services $(if $(filter otel,$(TRAFFIC)),collector agent) ## Run the whole live system as local processes until Ctrl-C
	@$(RUN) -m deploy.local stack --traffic $(TRAFFIC) $(STACK)

collector: setup ## Build the OpenTelemetry Collector if it is missing; some minutes
	@$(BIN)/python -m deploy.local install --traces

.PHONY: chart chart-tools test-chart chart-server
chart: ## Write the complete Helm chart to out/chart
	@$(or $(PYTHON),python3) -m deploy.helm out/chart

chart-tools: setup ## Build helm, helm-unittest and kubeconform if they are missing; some minutes
	@$(BIN)/python -m deploy.local install --charts

test-chart: chart-tools ## Lint and test the Helm chart, and compare what it renders with Kubernetes' schemas
	@$(BIN)/python -m deploy.helm.check

chart-server: chart-tools ## Give the chart to a real kube-apiserver; builds that the first time, nine minutes of processor time
	@$(BIN)/python -m deploy.helm.server

# The agent has an environment of its own.
.venv/agent/.ready: examples/langgraph/requirements.txt | $(RUNTIME)
	@echo "installing what the agent needs (a minute)"
	@$(BIN)/python -m venv .venv/agent
	@.venv/agent/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

agent: .venv/agent/.ready ## Install the agent of examples/langgraph, in .venv/agent

# What the project is measured against has an environment of its own.
.venv/peers/.ready: benchmarks/peers/requirements.txt | $(READY)
	@echo "installing what the benchmarks compare with (a minute)"
	@$(BIN)/python -m venv .venv/peers
	@.venv/peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

peers: .venv/peers/.ready ## Install the tools that the benchmarks compare with, in .venv/peers

# BENCH is a part with its options, such as BENCH="live --quick", or BENCH=engines.
bench: services $(if $(BENCH),,peers collector agent) ## Run the benchmarks; print machine, versions, n, median and spread
	@$(RUN) -m benchmarks $(BENCH)

# SEED is the first seed, ROUNDS how many follow; CAMPAIGN has further options, such as
# CAMPAIGN="--only zombie --events 20000 --conversations 4000 --report out/campaign".
SEED ?= 1
ROUNDS ?= 1
campaign: services ## Inject seeded faults into a live system under load; some minutes a seed
	@$(BIN)/python -m deploy.local faketime
	@$(RUN) -m tests.campaign --seed $(SEED) --rounds $(ROUNDS) $(CAMPAIGN)

# BRIDGE has options, such as BRIDGE="--traces 500 --kills 4" for a look in a minute.
bridge-campaign: services ## Kill bridges and workers while traces arrive; compare with a replay
	@$(RUN) -m tests.bridge_campaign --seed $(SEED) --rounds $(ROUNDS) $(BRIDGE)

# SERVE has options, such as SERVE="--only full_disk --events 4000 --traces 100".
serve-campaign: setup build ## Inject seeded faults into one process while clients send; two minutes a seed; needs root
	@$(RUN) -m tests.serve_campaign --seed $(SEED) --rounds $(ROUNDS) $(SERVE)

# NEIGHBOURS has options, such as NEIGHBOURS="--minutes 5 --publish docs/evidence/neighbours-run.md".
neighbours: services collector ## Send bad traces beside three services' good ones for an hour, and compare
	@$(RUN) -m tests.neighbours_campaign $(NEIGHBOURS)

# OUTAGES has options, such as OUTAGES="--only kafka redis --minutes 3", or OUTAGES="--at-once 3 --publish docs/evidence/outages-run.md".
outages: services ## Take Kafka, Redis, brokers and rights away for minutes each, and tell what is said; two hours
	@$(RUN) -m tests.outage_campaign $(OUTAGES)

# DRILL has options, such as DRILL="--tuning 1 --held-out --bursts --agents 5 --days 4" for a look in minutes.
drill: services ## Test the alert rules on simulated weeks of traffic and incidents; long
	@$(RUN) -m tests.drill --out docs/evidence/alerts-run.md --pictures docs/pictures $(DRILL)

# CALIBRATION has options, such as CALIBRATION="--simulations 1000 --draws 1000" for a look in a minute.
calibration: setup ## Measure the coverage of intervals and the power of tests by simulation; long
	@$(RUN) -m tests.calibration --out docs/evidence/calibration.md $(CALIBRATION)

# LABEL_CALIBRATION has options, such as LABEL_CALIBRATION="--samples 400" for a look in a minute.
label-calibration: setup ## Measure the coverage of estimates from labels by people and a model; minutes
	@$(RUN) -m tests.label_calibration --out docs $(LABEL_CALIBRATION)

# MUTATIONS names the builds; without it all are made.
mutations: services ## Break the source on purpose, and check that tests notice; some minutes
	@$(BIN)/python -m tests.mutations $(MUTATIONS)

# PROGRAMS is a pattern for some of the programs, such as PROGRAMS="haystack-*", or options:
# PROGRAMS="--kept --page docs/evidence/conformance.md" goes on with a run. The page is of all.
conformance: setup ## Run agents of real frameworks under real instrumentations (needs Node, too); an hour
	@$(BIN)/python -m tests.conformance $(or $(PROGRAMS),--page docs/evidence/conformance.md)

bounds: services ## Check one worker's memory over a million conversations; 10 minutes
	@$(RUN) -m benchmarks bounds

# FUZZ_SECONDS for each target; TARGETS are some of those in tests/fuzz/targets.py, by default all.
FUZZ_SECONDS ?= 30
fuzz: kernel .venv/.fuzz ## Fuzz the decoders, guided by coverage
	@$(BIN)/python -m tests.fuzz $(TARGETS) --seconds $(FUZZ_SECONDS)

.venv/.fuzz: tests/fuzz/requirements.txt | $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

bench-replay: setup ## Replay a million events with 1 and 2 processes, killed and resumed; long
	@$(RUN) -m benchmarks replay

# SPARK_BENCH has options, such as SPARK_BENCH="--records 60000 --rounds 1" for a look in minutes.
bench-spark: .venv/spark/.ready build ## Replay a million events on Spark and with two processes in turn; long
	@$(SPARK) -m benchmarks.spark $(SPARK_BENCH)

profile: services ## Profile the benchmarks
	@$(RUN) -m benchmarks profile

dashboards: setup ## Generate the Grafana dashboards
	@$(BIN)/python -m deploy.dashboards

panels: services ## Check each Grafana panel against a live system; a minute
	@$(RUN) -m tests.shown

docs: setup ## Generate the reference pages, the alert rules, and the schema of the Helm chart
	@$(BIN)/python -m docs.pages docs/reference
	@$(BIN)/stream-metrics rules --out deploy/prometheus
	@$(BIN)/python -m deploy.helm.schema
	@$(BIN)/python -m tests.mutations --page docs/evidence

# The site has an environment of its own. The variable silences an advertisement of its theme.
.venv/docs/.ready: docs/requirements.txt | $(RUNTIME)
	@echo "installing what builds the documentation site"
	@$(BIN)/python -m venv .venv/docs
	@.venv/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

docs-site: .venv/docs/.ready ## Build the documentation as a site in out/site; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --strict --quiet
	@echo "to read it: python3 -m http.server --directory out/site 8000"

.venv/dist/.ready: deploy/dist/requirements.txt | $(READY)
	@echo "installing what builds releases, in .venv/dist (half a minute)"
	@$(BIN)/python -m venv .venv/dist
	@.venv/dist/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

dist: .venv/dist/.ready chart-tools ## Build the files of a release in dist/, and try them without a compiler; some minutes
	@$(TOOLS) python -m deploy.local compiler
	@$(TOOLS) python -m deploy.dist dist

lock: setup ## Pin the newest versions that pyproject.toml allows, with hashes
	@$(PIN) --extra dev --upgrade --output-file constraints.txt pyproject.toml
	@$(PIN) --constraint constraints.txt --output-file deploy/docker/requirements.txt pyproject.toml
	@$(PIN) --constraint constraints.txt --extra judge --output-file deploy/docker/image-requirements.txt \
		pyproject.toml
	@$(PIN) --upgrade --output-file docs/requirements.txt docs/requirements.in
	@$(PIN) --upgrade --output-file benchmarks/peers/requirements.txt benchmarks/peers/requirements.in
	@$(PIN) --upgrade --output-file deploy/dist/requirements.txt deploy/dist/requirements.in
	@$(PIN) --upgrade --output-file client/tests/requirements.txt client/tests/requirements.in
	@$(PIN) --constraint constraints.txt --extra spark --output-file tests/spark/requirements.txt \
		pyproject.toml tests/spark/requirements.in
	@$(PIN) --upgrade --output-file examples/langgraph/requirements.txt examples/langgraph/requirements.in
	@for environment in shared openllmetry loongsuite agents strands adk crewai microsoft claude; do \
		$(BIN)/uv pip compile --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
			--no-emit-find-links --no-config --quiet --custom-compile-command "make lock" --upgrade \
			--output-file tests/conformance/environments/$$environment.txt \
			tests/conformance/environments/$$environment.in; \
	done
	@cd tests/conformance/environments/javascript && npm update --package-lock-only --ignore-scripts \
		--omit-lockfile-registry-resolved --no-audit --no-fund --silent
	@printf 'mypy\nsetuptools\nsetuptools-rust\n' | $(PIN) --constraint constraints.txt \
		--output-file deploy/docker/build-requirements.txt -

clean: ## Remove .venv and all build output
	rm -rf .venv stream_metrics/_engine*.so kernel/target build out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
