# The commands of a working day. Each is quick when there is nothing to do.
#   make demo     see an engine die and be relaunched in two pods
#   make test     everything that this machine can run

PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(shell $(p) -c \
	'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))

# The tiers in the order in which a failure says most, then whatever else lies under tests/.
TIERS = $(addprefix tests/,unit virtual processes pods engines)
OTHER_TESTS = $(filter-out $(TIERS) tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/))) $(wildcard tests/test_*.py)
PYTEST_ARGS ?=

.PHONY: setup engines demo test lint bench clean

setup: .venv/.installed

.venv/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "cannot set up: no Python 3.11 or newer on PATH" >&2; exit 1; }
	test -x .venv/bin/pip || $(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

engines: setup
	.venv/bin/python -m controller.demo.install_engines

demo: setup engines
	.venv/bin/podvisor demo

test: setup engines lint
	.venv/bin/python -m pytest $(PYTEST_ARGS) $(TIERS) $(OTHER_TESTS)

lint: setup
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports

bench: setup engines
	.venv/bin/python -m tests.bench

clean:
	rm -rf .venv .engines .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
