# What each word does: README.md (demo, test), CONTRIBUTING.md (the rest).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint bench soak lock environment system cluster cluster-down test-cluster
.DEFAULT_GOAL := demo

environment:
	@$(PYTHON) tools/environment.py

system: environment
	@$(PYTHON) tools/environment.py --system

demo: environment
	@$(BIN)/swell demo

lint: environment
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted; run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --config .importlinter >/dev/null || $(BIN)/lint-imports --config .importlinter

check: lint
	@$(BIN)/python tools/run_tests.py fast

test: system
	@$(BIN)/python tools/run_tests.py local

# A Kubernetes cluster to try things on. CLUSTER="--kubelets 2 --gpus 4 --operators training" asks for real nodes.
CLUSTER ?= --kwok 10
cluster: system
	@$(BIN)/python -m tests.cluster up $(CLUSTER)

cluster-down:
	@$(BIN)/python -m tests.cluster down

test-cluster: system
	@$(BIN)/python -m tests.cluster build --tests
	@$(BIN)/python tools/run_tests.py cluster

soak: system
	@$(BIN)/python tools/soak.py

bench: environment
	@$(BIN)/python -m bench

lock:
	@$(BIN)/python tools/lock.py
