# What each word does: README.md (demo, test), CONTRIBUTING.md (the rest).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench soak lock environment system
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
	@$(BIN)/pytest -q -m slow

soak: system
	@$(BIN)/python tools/soak.py

bench: environment
	@$(BIN)/python -m bench

lock:
	@$(BIN)/python tools/lock.py
