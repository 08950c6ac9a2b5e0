# Every target sets up its own .venv when missing and never touches the system.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick lint docs bench mutants faults fuzz clean

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# Set up and turn a made-up private shop into a synthetic one.
demo: $(VENV)/.ready
	$(BIN)/dpweave demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

# Without the tests that take more than a few seconds.
quick: $(VENV)/.dev
	$(BIN)/pytest -n 2 -m "not slow" -x

# The site, in build/site. (The theme's notice about its successor: docs/decisions/theme.md.)
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: pictures
# Pictures of the tutorials and reports of the gallery, in docs/. Needs Chromium.
pictures: $(VENV)/.dev
	$(BIN)/python -m tests.pictures

bench: $(VENV)/.dev
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python -m benchmarks.$$(basename $$script .py) || exit 1; done

# Plant bugs in the trusted core, one by one; fails if no test notices one. Writes docs/mutants.md.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants

# Kill 2,000 processes over all that writes; whoever goes on must end as if nobody had been killed. And a crowd of fits.
faults: $(VENV)/.dev
	$(BIN)/python -m tests.faults --kills 2000
	$(BIN)/python -m tests.faults.crowd --fits 100 --models 37
	$(BIN)/pytest -n 2 tests/faults tests/budget/test_kept_answers.py

# Try 100,000 broken plans, models, ledgers, answers and schemas; fails on any error that is not ours.
fuzz: $(VENV)/.dev
	$(BIN)/python -W ignore -m tests.fuzz --count 12000 --keep

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
