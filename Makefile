# What each word does: README.md (demo, test), CONTRIBUTING.md (the rest).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench soak lock environment system cluster cluster-down test-cluster
.DEFAULT_GOAL := demo

environment:
	@$(PYTHON) tools/environment.py

system: environment
	@$(PYTHON) tools/environment.py --system

demo: environment
	@$(BIN)/swell demo

check: environment
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted; run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --config .importlinter >/dev/null || $(BIN)/lint-imports --config .importlinter
	@$(BIN)/pytest -q -m "not slow"

test: check system
	@$(BIN)/python -m tests.cluster build --tests
	@echo "tests that start servers (slow) and tests of a real Kubernetes (cluster), side by side: some 20 minutes"
	@$(BIN)/python tools/side_by_side.py \
		slow="$(BIN)/pytest -q -m 'slow and not cluster'" cluster="$(BIN)/pytest -q -m cluster"

# A Kubernetes cluster to try things on. CLUSTER="--kubelets 2 --gpus 4 --operators training" asks for real nodes.
CLUSTER ?= --kwok 10
cluster: system
	@$(BIN)/python -m tests.cluster up $(CLUSTER)

cluster-down:
	@$(BIN)/python -m tests.cluster down

test-cluster: system
	@$(BIN)/python -m tests.cluster build --tests
	@$(BIN)/pytest -q -m cluster

soak: system
	@$(BIN)/python tools/soak.py

bench: environment
	@$(BIN)/python -m bench

lock:
	@$(BIN)/python tools/lock.py
