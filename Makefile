# The commands of a working day. Each is quick when there is nothing to do.
#   make demo     see an engine die and be relaunched in two pods
#   make test     everything that this machine can run
#   make engines REAL_MODEL=yes     bring a small model too that says real words (241 MB, then 0.5 GB)
#   make zipapp   dist/podvisor.pyz, podvisor in one file

PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(shell $(p) -c \
	'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))

# Two lanes, side by side and about equally long: where one waits for processes the other works. In each the tiers stand in
# the order in which a failure says most; the second has whatever else lies under tests/.
LANE_1 = $(addprefix tests/,unit virtual pods engines chaos)
LANE_2 = tests/processes $(filter-out $(LANE_1) tests/processes tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/))) $(wildcard tests/test_*.py)
PYTEST_ARGS ?=
# For which a zipapp and an image are built.
PYTHONS ?= 3.11 3.12 3.13 3.14

.PHONY: setup engines vllm manifest-tools demo test test-vllm lint bench wheels zipapp clean

setup: .venv/.installed

.venv/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "cannot set up: no Python 3.11 or newer on PATH" >&2; exit 1; }
	test -x .venv/bin/pip || $(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

engines: setup
	.venv/bin/python -m controller.demo.install_engines $(if $(REAL_MODEL),--real-model)

manifest-tools: setup
	.venv/bin/python -m tests.deploy.install_tools

# vLLM for CPUs and LMCache: 2.7 GB.
vllm: setup
	.venv/bin/python -m controller.demo.install_vllm

demo: setup engines
	.venv/bin/podvisor demo

test: setup engines manifest-tools lint
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target test-lane-1 test-lane-2

test-lane-%:
	.venv/bin/python -m pytest $(PYTEST_ARGS) $(LANE_$*)

# Real vLLM over pods; the timeline of every relaunch is printed.
test-vllm: engines vllm
	.venv/bin/python -m pytest --capture=no -m vllm $(PYTEST_ARGS) tests/engines

lint: setup
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/mypy -m docs.examples.router
	.venv/bin/lint-imports

bench: setup engines
	.venv/bin/python -m tests.bench

wheels: setup
	rm -rf dist/wheels
	PATH="$(CURDIR)/.venv/bin:$$PATH" deploy/wheels.sh dist/wheels $(PYTHONS)

zipapp: wheels
	.venv/bin/python deploy/pyz.py --wheels dist/wheels dist/podvisor.pyz

clean:
	rm -rf dist .venv .engines .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
