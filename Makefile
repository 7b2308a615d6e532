# make demo | up | test | adapters | lint | check | supply | locks | bench | screenshots | clean. Everything is installed into .venv; nothing else is changed.
# On Linux a plain torch brings CUDA with it; for the CPU build:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# pip would compile everything on one core. Here .venv is compiled on all of them (some packages have files for later
# Pythons, which fail), and what is used of the other environments at its first import.
INSTALL := install --quiet --no-compile
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
ARGS   ?=
TORCH_INDEX ?=

RUNTIME := $(VENV)/.installed
TESTS   := $(VENV)/.installed-tests
ADAPTERS := .venv-adapters/.installed
SUPPLY := .venv-supply/.installed

FAST         := "not integration and not browser and not cluster and not alone"
SIDE_BY_SIDE := -n 4 --dist loadfile

# With compiled bytecode, processes start 25 % sooner.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo up test adapters lint check supply locks bench screenshots clean
.DELETE_ON_ERROR:

demo: $(RUNTIME)
	@exec $(BIN)/python manage.py demo $(ARGS)

up: $(RUNTIME)
	@exec $(BIN)/python manage.py up $(ARGS)

# Hypothesis tries a quarter of the examples that its laws name, and tests marked thorough are left out; all of both with:
# make test HYPOTHESIS_PROFILE=thorough
HYPOTHESIS_PROFILE ?= quick
export HYPOTHESIS_PROFILE

# Tests wait for part of their time: four in parallel keep two cores busy, three of those that start many processes, or
# two of those that start a cluster each.
# Each part runs even if an earlier one failed. Tests that failed in parallel are run again alone; make fails only if one
# fails again. pytest exits with 1 if a test failed, and with 5 if ARGS selected no test of a part.
test: $(TESTS)
	@set -x; failed=0; broken=0; \
	  run() { $(BIN)/python -m pytest "$$@" $(ARGS); case $$? in 0|5) ;; 1) failed=1 ;; *) broken=1 ;; esac; }; \
	  run -m $(FAST) $(SIDE_BY_SIDE); \
	  run -m "integration or browser" -n 3 --dist loadfile; \
	  run -m cluster -n 2 --dist loadfile; \
	  run -m alone; \
	  if [ $$failed = 1 ]; then $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(ARGS) || broken=1; fi; \
	  exit $$broken

# The libraries that paceline.adapters supports, in a separate environment; without it their tests are skipped.
adapters: $(ADAPTERS)

lint: $(TESTS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest -m $(FAST) $(SIDE_BY_SIDE) $(ARGS)

# A bill of materials (CycloneDX) of the installed packages, and a check for known vulnerabilities.
supply: $(SUPPLY) $(TESTS)
	@mkdir -p var
	@.venv-supply/bin/cyclonedx-py environment $(VENV) --output-reproducible --of JSON -o var/sbom.cdx.json
	@echo "var/sbom.cdx.json: $$(grep -c '"bom-ref"' var/sbom.cdx.json) components"
	@$(BIN)/python deploy/audit_dependencies.py .venv-supply/bin/pip-audit \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

# Lock files of the images' requirements, with hashes. Run after a change of requirements/.
locks: $(SUPPLY)
	$(BIN)/python deploy/lock.py $(CURDIR)/.venv-supply/bin/uv

bench: $(RUNTIME)
	$(BIN)/python manage.py bench decisions $(ARGS)

screenshots: $(TESTS)
	$(BIN)/python -m pytest --timeout=600 tests/browser/screenshots.py $(ARGS)
	@echo "Screenshots of every page are in var/screenshots."

clean:
	rm -rf $(VENV) .venv-adapters .venv-supply var .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No python3 on the PATH. Paceline needs Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is too old: Paceline needs Python 3.11 or newer. Name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
	  || { echo "$(PYTHON) cannot create virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Requirements are installed only if they changed, so that an installed checkout starts at once.
$(RUNTIME): requirements.txt requirements/controlplane.txt requirements/agent.txt requirements/constraints.txt | $(BIN)/python
	$(if $(TORCH_INDEX),$(PIP) $(INSTALL) --extra-index-url $(TORCH_INDEX) -r requirements/agent.txt)
	$(PIP) $(INSTALL) -r requirements.txt
	@$(PIP) check
	@$(COMPILE)
	@touch $@

$(TESTS): requirements/tests.txt requirements/tracing.txt $(RUNTIME)
	$(PIP) install --quiet -r requirements/tests.txt
	@$(PIP) check
	@touch $@

# Other environments are made without a pip of their own: that of .venv installs into them.
$(SUPPLY): requirements/supply.txt | $(BIN)/python
	$(PYTHON) -m venv --without-pip .venv-supply
	$(PIP) --python .venv-supply/bin/python $(INSTALL) -r requirements/supply.txt
	@touch $@

$(ADAPTERS): requirements/adapters.txt requirements/ray.txt | $(BIN)/python
	$(PYTHON) -m venv --without-pip .venv-adapters
	$(if $(TORCH_INDEX),$(PIP) --python .venv-adapters/bin/python $(INSTALL) --extra-index-url $(TORCH_INDEX) torch==2.13.0)
	$(PIP) --python .venv-adapters/bin/python $(INSTALL) -r requirements/adapters.txt
	@touch $@
