# The image of the pipeline, and the local stack: part of the Makefile. With monitoring, if the project has it.
IMAGE ?= pipeline:local
# For the image: another base than that of the Dockerfile, and more arguments for `docker build`.
BASE ?=
BUILD_ARGS ?=
# For the local stack: some services alone, with what they need.
SERVICES ?=
VERSION = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
COMPOSE = PIPELINE_IMAGE=$(IMAGE) docker compose --file compose.yaml $(addprefix --file ,$(wildcard ops/compose.yaml))

.PHONY: image image-test stack-test up down logs

image: ## build the image of the pipeline; another base or name: make image BASE=... IMAGE=...
	docker build --tag $(IMAGE) $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$(REVISION) $(BUILD_ARGS) .

image-test: $(READY) image ## build the image, and run it against a Kafka container: healthy, stopped in order, audit exact
	PIPELINE_IMAGE=$(IMAGE) KAFKA=container $(RUN) -m pytest -m image tests/integration

stack-test: $(READY) ## start the local stack beside yours, on other ports: healthy, scraped, audit exact, nothing left of it
	$(RUN) -m pytest -m stack tests/integration $(ARGS)

up: .env image ## start the local stack: Kafka, registry, pipeline, sample events, monitoring; with a UI: ARGS="--profile ui"
	$(COMPOSE) $(ARGS) up --no-build --detach $(SERVICES)
	@echo "metrics: localhost:$(or $(METRICS_PORT),9108)/metrics; what happens: make logs"
	@if [ -e ops/compose.yaml ]; then echo "Prometheus: localhost:$(or $(PROMETHEUS_PORT),9090)," \
		"Grafana: localhost:$(or $(GRAFANA_PORT),3000) (admin, password in .env)"; fi

down: .env ## stop the local stack; with its data: ARGS=--volumes
	$(COMPOSE) --profile ui down $(ARGS)

logs: .env ## follow what the local stack says; of one service: ARGS=pipeline
	$(COMPOSE) logs --follow --tail 100 $(ARGS)

# Secrets of the local stack, made up once; git ignores the file.
.env:
	@umask 077 && $(PYTHON) -c "import secrets; print('GRAFANA_PASSWORD=' + secrets.token_urlsafe())" > $@
