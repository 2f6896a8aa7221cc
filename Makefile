# `make` lists the commands. The first that needs it sets up $(VENV), once, for the template and its projects alike.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
# For `make bake`: answers as name=value, and the folder to put the project into.
ANSWERS ?=
INTO ?= $(BUILD)/bake
# More arguments for pytest: make template-test ARGS="-k slug"
ARGS ?=
# Tests run side by side; more than cores would make them wait for each other.
WORKERS ?= 2

PROJECT := $(shell ls -d '{{cookiecutter'*)
SOURCES := ci hooks tests
READY := $(abspath $(VENV))/.ready
RUN := $(abspath $(VENV))/bin/python
CACHE := $(abspath $(BUILD))/cache
# `make` in a project, with this virtual environment taken as it is.
MAKE_IN = $(MAKE) --no-print-directory VENV=$(abspath $(VENV)) -o $(READY) -C

# Tools run in place must leave nothing in the template: a bake would copy it into projects.
export PYTHONDONTWRITEBYTECODE := 1
export RUFF_CACHE_DIR := $(CACHE)/ruff
export MYPY_CACHE_DIR := $(CACHE)/mypy
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
# The tests need nothing but Java, whatever engine runs here; `make container-test` is the one that wants it.
export KAFKA ?= embedded

.DEFAULT_GOAL := help
.PHONY: help setup demo test template-test unit-test project-test minimal-test container-test image-test stack-test manifests faults mutants check format bake golden docs lock clean tidy

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## install the dependencies of the template and of its projects, and fetch the jars
	@$(MAKE_IN) "$(PROJECT)" setup

demo: $(READY) tidy ## make the default project and run its demo: payments, kills in mid-transaction, audit
	@rm -rf $(BUILD)/demo
	@ci/bake.sh $(RUN) $(BUILD)/demo
	$(MAKE_IN) $(BUILD)/demo/* demo

test: template-test project-test ## run all tests: the template's, and those of the default project

template-test: $(READY) tidy ## test the template: answers, hooks, trees, documents, updates, each supported project
	$(call say,tests of the template)
	@$(RUN) -m pytest -m "not whole" -n $(WORKERS) --dist worksteal $(ARGS)

unit-test: $(READY) tidy ## run the project's unit tests in place
	$(call say,unit tests of the project in place)
	@PYTEST_ADDOPTS="-p no:cacheprovider" $(MAKE_IN) "$(PROJECT)" unit
	@$(MAKE) --no-print-directory tidy

project-test: $(READY) tidy ## make the default project, and run all its tests on a real broker
	$(call say,all tests of the default project)
	@$(RUN) -m pytest -m whole -k default $(ARGS)

minimal-test: $(READY) tidy ## make the minimal project, and run all its tests on a real broker
	$(call say,all tests of the minimal project)
	@$(RUN) -m pytest -m whole -k minimal $(ARGS)

container-test: $(READY) tidy ## make the default project, and run its container tests; an engine: ci/containers.sh run make container-test
	@rm -rf $(BUILD)/container-test
	@ci/bake.sh $(RUN) $(BUILD)/container-test
	$(MAKE_IN) $(BUILD)/container-test/* container-test

image-test: $(READY) tidy ## make the default project, build its image on a base that is here, and run it against a Kafka container
	@rm -rf $(BUILD)/image-test
	@ci/bake.sh $(RUN) $(BUILD)/image-test
	base=$$(ci/base.sh) && $(MAKE_IN) $(BUILD)/image-test/* image-test BASE=$$base BUILD_ARGS="--network host"

stack-test: $(READY) tidy ## make the default project, and start its local stack as far as images are to be had; by hand, with minutes to spare
	@rm -rf $(BUILD)/stack-test
	@ci/bake.sh $(RUN) $(BUILD)/stack-test
	base=$$(ci/base.sh) && prometheus=$$(ci/prometheus.sh) && config=$$(ci/compose.sh) && DOCKER_CONFIG=$$config PROMETHEUS_IMAGE=$$prometheus \
		$(MAKE_IN) $(BUILD)/stack-test/* stack-test BASE=$$base BUILD_ARGS="--network host"

manifests: $(READY) tidy ## hold the project's Kubernetes manifests against kustomize and kubeconform, where these are to be had
	$(call say,manifests by kustomize and kubeconform)
	@ci/manifests.sh $(RUN)

faults: $(READY) tidy ## make the default project, run all its fault cases, and write docs/fault-report.md
	@rm -rf $(BUILD)/faults
	@ci/bake.sh $(RUN) $(BUILD)/faults
	$(MAKE_IN) $(BUILD)/faults/* faults ARGS="--report $(CURDIR)/docs/fault-report.md $(ARGS)"

mutants: $(READY) tidy ## make the default project and break it on purpose, invariant by invariant
	@rm -rf $(BUILD)/mutants
	@ci/bake.sh $(RUN) $(BUILD)/mutants
	$(MAKE_IN) $(BUILD)/mutants/* mutants

check: $(READY) tidy ## lint, formatting and types, of the template and of the project in place
	$(call say,lint and types of the template)
	@$(VENV)/bin/ruff check $(SOURCES)
	@$(VENV)/bin/ruff format --check $(SOURCES)
	@$(VENV)/bin/mypy
	$(call say,lint and types of the project in place)
	@$(MAKE_IN) "$(PROJECT)" check

format: $(READY) ## mend formatting and what the linter can mend, in both places
	$(VENV)/bin/ruff check --fix $(SOURCES)
	$(VENV)/bin/ruff format $(SOURCES)
	$(MAKE_IN) "$(PROJECT)" format

bake: $(READY) tidy ## make a project by hand: make bake ANSWERS="project_name='Card fraud' license=MIT" INTO=/tmp
	@ci/bake.sh $(RUN) $(INTO) $(ANSWERS)

golden: $(READY) tidy ## write the listings in tests/golden anew, for review
	@$(RUN) -m pytest tests/test_tree.py --golden $(ARGS)

docs: $(READY) tidy ## write the generated pages in docs/ anew
	@$(RUN) ci/pages.py

lock: $(READY) tidy ## write the project's lock files anew; with the newest versions: ARGS=--upgrade
	@$(MAKE_IN) "$(PROJECT)" lock ARGS="$(ARGS)"

clean: tidy ## remove all that make has made; the jars stay in their own cache
	rm -rf $(VENV) $(BUILD)

# What tools run in place, by hand or here, have left in the template: caches, and the folders that Spark makes.
tidy:
	@find "$(PROJECT)" \( -name __pycache__ -o -name '.*_cache' -o -name .hypothesis -o -name '*.egg-info' \
		-o -name artifacts -o -name spark-warehouse \) -prune -exec rm -rf {} +

$(READY): pyproject.toml $(BUILD)/requirements.txt
	@$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --disable-pip-version-check --progress-bar on -r $(BUILD)/requirements.txt
	@touch $@

# Always looked at, written only when the pins have changed.
$(BUILD)/requirements.txt: FORCE
	@$(MAKE) --no-print-directory -C "$(PROJECT)" tools PYTHON=$(PYTHON)
	@mkdir -p $(BUILD)
	@$(PYTHON) ci/requirements.py > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
FORCE:

say = @printf '\n== %s ==\n' "$(1)"
