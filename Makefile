# make train, make demo, make test: each sets up .venv first. See the README.
SHELL := /bin/bash
VENV ?= .venv
# which Python to make .venv from; by default the first suitable one on PATH
PYTHON ?=
ARGS ?=
BIN := $(VENV)/bin
# not abspath, which ends a path at a blank
ABSOLUTE_BIN := $(if $(filter /%,$(VENV)),$(BIN),$(CURDIR)/$(BIN))
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))
RUN_FOLDER := experiments/demo-$(shell date +%Y%m%d-%H%M%S)
# one thread each: the tests' networks are tiny, and two workers share the cores
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: train demo test test-process test-release lint docs bench gpu-check xvfb clean

train: $(VENV)/installed-window
	$(BIN)/breakout train $(ARGS)

# each demo gets a new folder: DI-engine adds the time to the name of an experiment that exists
demo: export GOMP_SPINCOUNT = 10000
demo: $(VENV)/installed-window
	mkdir -p $(RUN_FOLDER)
	cd $(RUN_FOLDER) && "$(ABSOLUTE_BIN)/ding" -m serial -c "$(CURDIR)/configs/breakout_dqn_demo_config.py" -s 0 --env-step 3000
	cd $(RUN_FOLDER) && "$(ABSOLUTE_BIN)/ding" -m eval -c "$(CURDIR)/configs/breakout_dqn_demo_config.py" -s 0 \
		--load-path experiments/breakout_dqn_demo/ckpt/ckpt_best.pth.tar --replay-path video
	@echo; echo "The demo is in $(RUN_FOLDER): checkpoints in experiments/breakout_dqn_demo/ckpt, a video of each game in video:"
	@cd $(RUN_FOLDER) && ls video/*-score*.mp4

# deterministic tests, minutes
test: $(VENV)/installed-test xvfb
	$(PYTEST) -n 2 --dist worksteal -m "not process and not release" $(ARGS)

# real processes; those against the clock one at a time. Exit code 5: ARGS names tests of the other call only
test-process: $(VENV)/installed-test xvfb
	$(PYTEST) -n 2 --dist worksteal -m "process and not alone" $(ARGS) || [ $$? = 5 ]
	$(PYTEST) -m alone $(ARGS) || [ $$? = 5 ]

# hours: soak, faults, fuzz; then versions, mutation, coverage and licences (see noxfile.py)
test-release: $(VENV)/installed-release xvfb
	HYPOTHESIS_PROFILE=release $(PYTEST) -m "release or fuzz" --timeout 0 $(ARGS)
	$(BIN)/nox

lint: $(VENV)/installed-test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	cd deploy && "$(ABSOLUTE_BIN)/shellcheck" slurm/*.sbatch && "$(ABSOLUTE_BIN)/hadolint" Dockerfile && "$(ABSOLUTE_BIN)/yamllint" kubernetes

# the guides and the API reference as a site in docs/_build, without network
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -c docs . docs/_build

# make bench BENCH=replay.cost: the docstring of each file in benchmarks/ says what it measures and how long it takes
BENCH ?= env.speed
bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.$(BENCH) $(ARGS)

# does learning on this machine's GPU compute what a CPU computes? without a GPU, only what a fake one shows
gpu-check: $(VENV)/installed-test
	$(PYTEST) tests/policy/test_gpu.py tests/policy/test_fake_gpu.py -v -rs $(ARGS)

# window, test, docs, release and bench are extras of setup.py
$(VENV)/installed-%: setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[$*$(if $(filter bench release,$*),$(comma)test)]'
	touch $@
comma := ,

$(VENV)/bin/python:
	@for python in $(if $(PYTHON),"$(PYTHON)",python3.11 python3.12 python3.10 python3); do \
		if "$$python" -c '$(SUPPORTED)' 2>/dev/null; then \
			"$$python" -m venv $(VENV) && exit 0; rm -f $(VENV)/bin/python; exit 1; fi; \
	done; \
	echo "breakout_env needs Python 3.10, 3.11 or 3.12; found $$("$(or $(PYTHON),python3)" --version 2>&1 | grep ^Python || echo none)." \
		"Install one of them, or name it: make PYTHON=/path/to/python3.11"; exit 1

# the window tests draw on a virtual screen; without one they are skipped
xvfb:
	@command -v Xvfb >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -y -qq --no-install-recommends xvfb; } \
		|| echo 'Xvfb is missing and cannot be installed here (apt-get install xvfb): the window tests will be skipped'

clean:
	rm -rf $(VENV) build docs/_build *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .nox mutants
