# Everything that a fresh clone needs is made on the way: the environment in .venv, the jars and all data in .local.
# A second run reinstalls and downloads nothing.

BIN := .venv/bin
STAMPS := .venv/.stamps
JARS := .local/cache/jars.stamp
# For editors: the pipeline files beside it name it.
SCHEMA := include/pipelines/pipeline.schema.json
# Programs that no code imports.
TOOLS := .local/tools
# An older Airflow with other people's providers.
OWN := .local/own_airflow
# Cheap tests first, so that a mistake shows early; long files before short ones, so that all workers end together.
# Files of other folders have a mark where a test takes long.
PROOF := tests/machine tests/e2e tests/faults tests/integration tests/browser \
	$(shell grep --recursive --files-with-matches --include='*.py' 'mark.proof' tests/unit tests/contract)
TESTS := $(wildcard tests/unit tests/machine tests/contract tests/dags tests/e2e tests/faults tests/integration)

SITE = $(BIN)/sphinx-build --fresh-env --builder html --fail-on-warning --keep-going --nitpicky --quiet docs .local/site

# Which of the other demos is asked for.
DEMO := $(filter-out postgres,$(SINK)) $(filter-out json,$(FORMAT))
$(if $(word 2,$(DEMO)),$(error SINK=$(SINK) and FORMAT=$(FORMAT) are two demos: name one of them))

# Hundreds of processes import the package and its tests. They are compiled once, also if the shell keeps no bytecode.
# Each worker has services of its own. In the proof one of them has an Airflow, which takes half a core while it waits.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --max-worker-restart 0 --no-loadscope-reorder --numprocesses

# Some packages are there as sources only. setuptools comes first, so that pip fetches none without a digest to build them.
INSTALL = -m pip install --disable-pip-version-check --require-hashes

.PHONY: help setup up down demo torture machine mutants calls network installed bench screenshots docs dist sbom audit changelog test proof \
	programs lint house
.DELETE_ON_ERROR:

help:  ## Show what can be made.
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; \
	done

setup: $(STAMPS)/project $(JARS) $(SCHEMA)  ## Install the environment and fetch the jars; part of all the others.

up: setup  ## Start the local services: Kafka, PostgreSQL, Spark, Airflow.
	@$(BIN)/batchledger up $(if $(filter avro,$(FORMAT)),--registry)

down:  ## Stop the local services. Data stays in .local.
	@if [ -x $(BIN)/batchledger ]; then $(BIN)/batchledger down; fi

demo: up  ## Take 336,776 real flights from Kafka through Airflow and Spark into PostgreSQL, exactly once; or SINK=kafka, SINK=iceberg, FORMAT=avro.
	@$(BIN)/batchledger demo $(addprefix flights_,$(DEMO))

torture: setup  ## Kill real services at random and compare log and target: ROUNDS=20 MODE=all SINK=postgres SEED=any.
	@$(BIN)/batchledger torture --rounds $(or $(ROUNDS),20) --mode $(or $(MODE),all) --sink $(or $(SINK),postgres) $(if $(SEED),--seed $(SEED))

machine: setup  ## Check the invariants under other schedules than the tests do: SEED=random SCHEDULES=200.
	@BATCHLEDGER_MACHINE_SEED=$(or $(SEED),random) BATCHLEDGER_MACHINE_SCHEDULES=$(or $(SCHEDULES),200) \
		$(BIN)/pytest tests/machine/test_machine.py tests/contract/lives/test_any_decisions.py -k 'hold or keys' --timeout=0

mutants: $(STAMPS)/project  ## Change the core, one expression at a time, and see that a test notices: ONLY='*.live.*' WORKERS=2.
	@WORKERS=$(or $(WORKERS),2) $(BIN)/python -m tests.mutation.campaign $(if $(ONLY),'$(ONLY)')

calls: setup  ## Let each call of a batch's life to PostgreSQL, Kafka and the catalog fail, in three ways: ONLY='table and once'.
	@BATCHLEDGER_EVERY_CALL=1 $(BIN)/pytest -p no:xdist tests/faults/test_nth_operation.py $(if $(ONLY),-k '$(ONLY)')

network: setup  ## Stream rows from Spark's workers on another machine, which is a network namespace; needs root and iproute2.
	@$(BIN)/pytest -p no:xdist tests/network

installed: programs setup $(OWN)/.stamp  ## Try the wheel in an empty environment: the demo, and the guide in Airflows of people.
	@$(BIN)/pytest -p no:xdist tests/installed

bench: setup  ## Compare with what one would run instead: SCALE=small RECORDS=2000000 ONLY=throughput,kills PUBLISH=1 AFTER=.
	@$(BIN)/python -m bench $(if $(SCALE),--scale $(SCALE)) $(if $(RECORDS),--records $(RECORDS)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY)) $(if $(AFTER),--after $(AFTER)) $(if $(PUBLISH),--publish)

screenshots: programs setup  ## Make the pictures of the README anew, with real pipelines, Airflow and a Chromium.
	@BATCHLEDGER_PICTURES=docs/pictures $(BIN)/pytest tests/browser tests/e2e/test_page.py tests/e2e/test_metrics.py

test: lint setup  ## Check the code, then test it: the core, every adapter, one life and one kill a sink: WORKERS=4.
	@$(PYTEST) $(or $(WORKERS),4) -m 'not proof' $(TESTS)

proof: programs setup  ## Test what takes long: every crash point, faults, state machine, clusters, Airflow, browser: WORKERS=2 PART=1/2.
	@BATCHLEDGER_PROOF_PART=$(PART) $(PYTEST) $(or $(WORKERS),2) -m proof $(PROOF)

programs: $(STAMPS)/packages  ## Make sure of Chromium and Prometheus for proof and screenshots; as root on Debian, install them.
	@$(BIN)/python -m tests.programs

docs: $(STAMPS)/project  ## Build the documentation as a site in .local/site; a dead link fails.
	@$(SITE)
	@echo "The site is in .local/site/index.html"

# Metadata that a build leaves in include/ is removed: Airflow would find the plugin in it a second time.
dist: $(STAMPS)/project  ## Build the wheel and the sdist in dist/, to install beside an Airflow of your own.
	@rm -rf dist include/batchledger.egg-info
	@mkdir -p dist .local
	@$(BIN)/python -c "from setuptools.build_meta import build_sdist; build_sdist('dist')" > .local/dist.log 2>&1 || { cat .local/dist.log; exit 1; }
	@rm -rf include/batchledger.egg-info
	@$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	@ls dist

# The list names what to install, not what needs what; the tool would warn about that.
sbom: $(TOOLS)/.stamp  ## List the packages of requirements.txt with their digests, as CycloneDX in .local/sbom.cdx.json.
	@mkdir -p .local
	@$(TOOLS)/bin/python -W ignore -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml \
		--mc-type application --output-reproducible --no-validate --output-file .local/sbom.cdx.json
	@echo "The list is in .local/sbom.cdx.json"

# Without --strict a package that the service does not know would pass.
audit: $(TOOLS)/.stamp  ## Ask PyPI for known weaknesses of the packages of requirements.txt; or OSV=URL, of a copy of your own.
	@$(TOOLS)/bin/pip-audit --strict --requirement requirements.txt --require-hashes --disable-pip --progress-spinner off \
		$(if $(OSV),--vulnerability-service osv --osv-url $(OSV))

changelog: $(TOOLS)/.stamp  ## Join the fragments of changelog.d into CHANGELOG.md: VERSION=0.3.0.
	@$(TOOLS)/bin/towncrier build --yes --version $(or $(VERSION),$(error name the version: make changelog VERSION=0.3.0))

house: setup  ## Measure how large the project is and what its commands cost, and fail beyond the bounds of pyproject.toml.
	@$(BIN)/python -m tests.house

# mypy and Sphinx take one core each, and most of the time.
lint: $(STAMPS)/project  ## Check style, types, the direction of imports, and the documentation.
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.house --fast
	@$(BIN)/mypy & types=$$!; $(SITE); site=$$?; wait $$types && exit $$site

$(STAMPS)/environment:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	if [ "$${version:-0}" -lt 17 ]; then \
		echo "error: Java 17 or newer is needed, found $${version:-none}: install it, put it on the PATH or name it in JAVA_HOME." >&2; \
		exit 1; \
	fi
	@for python in python3 python3.11 python3.12 python3.13; do \
		if "$$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
			"$$python" -m venv .venv && mkdir -p $(STAMPS) && touch $@; \
			exit; \
		fi; \
	done; \
	found=$$(python3 --version 2>/dev/null); \
	echo "error: Python 3.11, 3.12 or 3.13 with its venv module is needed, found $${found:-none}: install it and put it on the PATH." >&2; \
	exit 1

$(STAMPS)/packages: requirements.txt tests/requirements.txt $(STAMPS)/environment
	@echo "Installing the locked packages into .venv; the first time takes some minutes."
	@sed -n '/^setuptools==/,/# via/p' requirements.txt > $(STAMPS)/setuptools.txt
	@wanted=$$(cat $(filter %.txt,$^) | grep -o '^[a-z0-9.-]*==' | sort -u | wc -l); log=$(STAMPS)/install.log; : > $$log; \
	while sleep 10 > /dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
		echo "  $$(grep -cE '^(Collecting|Requirement already)' $$log) of $$wanted packages fetched," \
			"$$(ls -d .venv/lib/python*/site-packages/*.dist-info | wc -l) installed"; \
	done & progress=$$!; \
	{ $(BIN)/python $(INSTALL) --requirement $(STAMPS)/setuptools.txt \
		&& $(BIN)/python $(INSTALL) --no-build-isolation $(addprefix --requirement ,$(filter %.txt,$^)); } >> $$log 2>&1; \
	status=$$?; kill $$progress; \
	if [ $$status -ne 0 ]; then \
		tail -n 20 $$log >&2; \
		echo "error: the packages could not be installed, see above: check the network and the free disk space, then try again." >&2; \
		exit 1; \
	fi
	@touch $@

$(TOOLS)/.stamp: tests/tools.txt $(STAMPS)/environment
	@echo "Installing the tools into $(TOOLS)."
	@$(BIN)/python -m venv --clear $(TOOLS) && $(TOOLS)/bin/python $(INSTALL) --quiet --requirement $<
	@touch $@

# As constraints, too: pip would look for newer versions of the packages that others ask for with an extra.
$(OWN)/.stamp: tests/own_airflow/requirements.txt $(STAMPS)/environment
	@echo "Installing an Airflow 3.2 with usual providers into $(OWN)."
	@$(BIN)/python -m venv --clear $(OWN)
	@$(OWN)/bin/python $(INSTALL) --quiet --requirement $< --constraint $<
	@touch $@

# Up to version 0.2.0 pip called the project batchledger: with both, Airflow would find the plugin twice.
$(STAMPS)/project: pyproject.toml $(STAMPS)/packages
	@$(BIN)/python -m pip uninstall --disable-pip-version-check --quiet --quiet --yes batchledger
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(SCHEMA): $(STAMPS)/project $(wildcard $(addprefix include/batchledger/,config/*.py model/*.py model/*/*.py settings/*.py sinks/*.py sinks/*/*.py))
	@$(BIN)/batchledger check --schema > $@

$(JARS): $(wildcard include/batchledger/local/stack/ivy/*) $(STAMPS)/packages
	@echo "Fetching the jars of Kafka, PostgreSQL and Spark."
	@PYTHONPATH=include $(BIN)/python -m batchledger.local.stack.jars
	@touch $@
