# make train, make test, make demo: each sets up .venv first. See the README.
SHELL := /bin/bash
VENV ?= .venv
# which Python to make .venv from; by default the first on PATH that will do
PYTHON ?=
ARGS ?=
BIN := $(VENV)/bin
# not abspath, which takes a blank in a path for the end of it
ABSOLUTE_BIN := $(if $(filter /%,$(VENV)),$(BIN),$(CURDIR)/$(BIN))
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))
RUN_FOLDER := experiments/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: train test demo bench bench-replay bench-manager bench-learner bench-train bench-busy bench-scale variants figures soak faults fuzz \
	planted matrix materials coverage lint xvfb clean

train: $(VENV)/installed-window
	$(BIN)/breakout train $(ARGS)

# Many tests watch real processes against the clock, which a busy machine can upset. What fails is run once more: a
# failure that comes twice is one, and the first of what passed then is shown at the end, as it may be a race of ours.
test: $(VENV)/installed-test xvfb
	$(BIN)/python -m pytest --reruns 1 --max-suite-reruns 10 --rerun-show-tracebacks $(ARGS)

# a folder of its own for each demo: DI-engine would add the time to an experiment's name that is taken
demo: $(VENV)/installed-window
	mkdir -p $(RUN_FOLDER)
	cd $(RUN_FOLDER) && "$(ABSOLUTE_BIN)/ding" -m serial -c "$(CURDIR)/configs/breakout_dqn_demo_config.py" -s 0 --env-step 8000
	cd $(RUN_FOLDER) && "$(ABSOLUTE_BIN)/ding" -m eval -c "$(CURDIR)/configs/breakout_dqn_demo_config.py" -s 0 \
		--load-path experiments/breakout_dqn_demo/ckpt/ckpt_best.pth.tar --replay-path video
	@echo; echo "The demo is in $(RUN_FOLDER): checkpoints in experiments/breakout_dqn_demo/ckpt, a video of each game in video:"
	@cd $(RUN_FOLDER) && ls video/*-score*.mp4

bench: $(VENV)/installed-bench
	$(BIN)/python benchmarks/bench_env.py $(ARGS)

# an hour, most of it filling the others' buffers
bench-replay: $(VENV)/installed-bench
	mkdir -p experiments
	$(BIN)/python benchmarks/play.py --player random --steps 1050000 --out experiments/random_1m.play
	$(BIN)/python benchmarks/play.py --player ball --steps 1050000 --out experiments/ball_1m.play
	$(BIN)/python benchmarks/bench_replay.py --play experiments/random_1m.play --out docs/results/bench_replay.json $(ARGS)
	$(BIN)/python benchmarks/bench_replay.py --play experiments/ball_1m.play --out docs/results/bench_replay_ball.json \
		--sizes 1000000 --only compressed --only 'compressed, prioritised'
	$(BIN)/python benchmarks/training_memory.py --play experiments/random_1m.play --out docs/results/training_memory.json
	$(BIN)/python benchmarks/draw_replay.py

# an hour: with 8 environments beside the peers, then with 1 to 64
bench-manager: $(VENV)/installed-bench
	$(BIN)/python benchmarks/bench_manager.py --out docs/results/bench_manager.json $(ARGS)
	$(BIN)/python benchmarks/bench_manager.py --scaling --repeats 3 --out docs/results/bench_manager_scaling.json $(ARGS)

# wants 16 GB of memory
bench-learner: $(VENV)/installed-bench
	$(BIN)/python benchmarks/bench_learner.py --out docs/results/bench_learner.json $(ARGS)
	$(BIN)/python benchmarks/bench_learner.py --batch-sizes 32,64,128,256,512 --repeats 3 --only DI-engine --only ours \
		--out docs/results/bench_learner_scaling.json $(ARGS)

bench-train: $(VENV)/installed-bench
	$(BIN)/python benchmarks/bench_train.py --out docs/results/bench_train.json $(ARGS)

# ten minutes; makes both cores busy itself
bench-busy: $(VENV)/installed-bench
	$(BIN)/python benchmarks/bench_busy.py --out docs/results/bench_busy.json $(ARGS)

# half an hour on a machine that does nothing else: bytes on the wire, what `breakout plan` reckons with, runs in many
# processes; then the tables and the figure of docs/scale.md
bench-scale: $(VENV)/installed-bench
	$(BIN)/python benchmarks/bench_exchange.py --out docs/results/bench_exchange.json
	$(BIN)/python benchmarks/scale_constants.py --out docs/results/scale_constants.json --ship
	$(BIN)/python benchmarks/bench_scale.py --out docs/results/bench_scale.json $(ARGS)
	$(BIN)/python docs/make_scale_tables.py

# the short trainings of docs/training.md; those that are done are passed over
variants: $(VENV)/installed-test
	$(BIN)/python benchmarks/train_variants.py --folder experiments/variants $(ARGS)

# redraws what docs/training.md shows from docs/results
figures: $(VENV)/installed-test
	$(BIN)/python docs/make_training_figures.py
	$(BIN)/python docs/make_variant_figures.py

# What docs/reliability.md promises, tried to break. ARGS='--hours 48' for a soak that goes on; what the guide shows is
# replaced by whole runs alone, or where ARGS has an --out of its own
soak: $(VENV)/installed-test xvfb
	$(BIN)/python reliability/soak.py $(or $(ARGS),--out docs/results/soak.json)

faults: $(VENV)/installed-test xvfb
	$(BIN)/python reliability/faults.py $(or $(ARGS),--out docs/results/faults.json)

fuzz: $(VENV)/installed-test
	$(BIN)/python reliability/fuzz.py $(or $(ARGS),--out docs/results/fuzz.json)

# faults put into a copy of this project: for each of them a test must fail
planted: $(VENV)/installed-test xvfb
	$(BIN)/python reliability/planted.py --out docs/results/planted.json $(ARGS)

# the Pythons and the lowest and highest versions that setup.py admits, each in an environment of its own
matrix: $(VENV)/installed-test
	$(BIN)/python reliability/matrix.py --out docs/results/matrix.json $(ARGS)

# what an installation brings, and under which licences
materials: $(VENV)/installed-test
	$(BIN)/python reliability/materials.py $(ARGS)

# the tests again, with a look at what of the package they run
coverage: $(VENV)/installed-test xvfb
	$(BIN)/python reliability/covered.py --out docs/results/coverage.json -- $(ARGS)

lint: $(VENV)/installed-test
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# window, test and bench are extras of setup.py
$(VENV)/installed-%: setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[$*$(if $(filter bench,$*),$(comma)test)]'
	touch $@
comma := ,

$(VENV)/bin/python:
	@for python in $(if $(PYTHON),"$(PYTHON)",python3.11 python3.12 python3.10 python3); do \
		if "$$python" -c '$(SUPPORTED)' 2>/dev/null; then \
			"$$python" -m venv $(VENV) && exit 0; rm -rf $(VENV); exit 1; fi; \
	done; \
	echo "breakout_env needs Python 3.10, 3.11 or 3.12; found $$("$(or $(PYTHON),python3)" --version 2>&1 | grep ^Python || echo neither)." \
		"Install one of them, or name it: make PYTHON=/path/to/python3.11"; exit 1

# the window tests draw on a virtual screen; without one they say that they are skipped
xvfb:
	@command -v Xvfb >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -y -qq --no-install-recommends xvfb; } \
		|| echo 'Xvfb is not there and can not be installed here (apt-get install xvfb): window tests will be skipped'

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
