# make demo    runs a shipped skill in a sandbox, from nothing
# make test    runs every test but the mutations
# The other targets are steps of these two, or for changing the code.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS):$(PATH)
# Tools have fixed versions here and are installed into .tools, so that go.mod does not
# need them. tool.NAME makes the rule of .tools/NAME.
tool.buf := github.com/bufbuild/buf/cmd/buf@v1.71.0
tool.protoc-gen-go := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
tool.protoc-gen-go-grpc := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
tool.grpcurl := github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
tool.staticcheck := honnef.co/go/tools/cmd/staticcheck@v0.8.2
tool.govulncheck := golang.org/x/vuln/cmd/govulncheck@v1.8.0
tool.gotestsum := gotest.tools/gotestsum@v1.13.0
# Not a tool: the benchmark compares sandboxes with it.
RUNC := github.com/opencontainers/runc@v1.5.2

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Static, so that init runs in any root file system, whatever its loader.
# grpcnotrace: see cmd/skillrund/takeover_calls.go.
TAGS := netgo,osusergo,sqlite_omit_load_extension,grpcnotrace
# Stripped: the daemon copies its binary when it starts, and keeps the copy in memory.
LDFLAGS := -s -w -X main.version=$(VERSION) -linkmode external -extldflags "-static -pthread -Wl,-z,relro,-z,now,-z,noexecstack"

# Debian packages for the build, the demo and the tests.
BUILD_PACKAGES := gcc libc6-dev libseccomp-dev pkg-config
WHEEL_PACKAGES := python3 python3-setuptools python3-wheel
# These generate the Python code of the contract.
GENERATE_PACKAGES := protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
TEST_PACKAGES := $(BUILD_PACKAGES) $(WHEEL_PACKAGES) python3-pip python3-venv python3-pandas python3-matplotlib \
	python3-grpcio python3-protobuf $(GENERATE_PACKAGES) mypy python3-typeshed libcap2-bin curl e2fsprogs git perl ruby \
	procps jq cppcheck iproute2 openssl passt slirp4netns tinyproxy-bin

# CPython's own tests come in a package for each version.
CPYTHON_TESTS = $(shell /usr/bin/python3 -c 'import sys; print("libpython%d.%d-testsuite" % sys.version_info[:2])' 2>/dev/null || echo libpython3.11-testsuite)

# For the run on cgroup v2, in a virtual machine.
CGROUP2_PACKAGES := $(BUILD_PACKAGES) qemu-system-x86 busybox-static e2fsprogs hostname libcap2-bin nodejs procps python3 tzdata

.PHONY: help
help: ## Lists the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: packages-build ## Builds the programs
	@echo "==> build bin/skillrund bin/skillrun bin/skillrun-network bin/skillrun-python"
	@CGO_ENABLED=1 go build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/skillrund ./cmd/skillrun ./cmd/skillrun-network ./cmd/skillrun-python

# The client alone, for users and agents on other machines. It needs no cgo.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: cross
cross: ## Builds and vets the client for Linux, macOS and Windows, on amd64 and arm64, into bin/cross
	@echo "==> cross $(PLATFORMS)"
	@PLATFORMS='$(PLATFORMS)' bash .ci/cross.sh build bin/cross -ldflags '-s -w -X main.version=$(VERSION)'
	@bash .ci/cross.sh vet

.PHONY: wheel
wheel: packages-wheel ## Builds the wheel of the Python client into dist/, without a network
	@bash clients/python/wheel.sh dist

.PHONY: demo
demo: build ## Starts the daemon and runs a shipped skill in a sandbox
	@bash deploy/demo.sh

# make survey SKILLS='[NAME=]DIR ...' SURVEY='--json --timeout=5s'
.PHONY: survey
survey: build ## Counts which skills in SKILLS='[NAME=]DIR ...' load, which of their command lines are allowed and which scripts run, as root
	@bash deploy/survey.sh $(SURVEY) -- $(SKILLS)

.PHONY: check
check: $(TOOLS)/staticcheck ## The inner loop: vet, staticcheck of what changed, and the tests that need neither root nor a daemon
	@bash .ci/check.sh

# Packages whose statements the tests must reach. A Go statement counts if it ran in any
# test binary. Other processes do not count: the daemon and the command that the tests of
# cmd start, a test binary before Isolate executes it again, and a sandbox's init, which
# is C.
COVERED := internal/admission internal/environment internal/environment/download internal/executor internal/network/dial internal/network/gateway internal/network/policy internal/permission internal/session internal/skill internal/skill/manifest internal/skill/snapshot internal/toolview sandbox sandbox/internal/seccomp sandbox/internal/cgroup sandbox/internal/mount sandbox/internal/netdev sandbox/internal/pid1 sandbox/internal/preflight sandbox/internal/pseudofs sandbox/internal/pyzygote sandbox/internal/socket sandbox/internal/zygote
COVERED_LEAST := 90
comma := ,
empty :=
blank := $(empty) $(empty)

# The tests of these packages don't count: they run the programs in bin/.
UNCOUNTED := ./cmd/skillrund ./internal/bench ./internal/survey

# The first of the other packages, in the order in which go test begins them: the longest one with those that wait most
# of the time, and then the next longest ones.
FIRST := ./sandbox ./internal/network ./cmd/skillrun ./internal/network/gateway \
	./internal/environment ./sandbox/internal/pyzygote ./internal/mcp ./internal/executor ./internal/toolview ./internal/record \
	./internal/server

# make lint runs vet. Test binaries need no symbol tables, which take time to link.
TEST_FLAGS = -vet=off -ldflags='-s -w' -count=1 -timeout 40m
# With the flags of make build, tests and the programs that they build use the packages that it has compiled.
# The embedded Python is unpacked once, for all packages.
TEST_ENV = GOFLAGS="$${GOFLAGS:-} -trimpath -tags=$(TAGS)" SKILLRUN_BIN=$(CURDIR)/bin SKILLRUN_TEST_PYTHON=$(CURDIR)/.cache/python

.PHONY: test
test: packages-test ## Runs every test but the mutations, as root
	@$(MAKE) --no-print-directory -j2 $(TOOLS)/gotestsum $(TOOLS)/grpcurl build
	@echo "==> test"
	@mkdir -p .cache
	@bash .ci/disk.sh $(MAKE) --no-print-directory -j2 test-counted test-uncounted
	@cat $(foreach part,counted uncounted faults,.cache/test-$(part).json) >.cache/test.json
	@echo "==> coverage: the tests of all packages together, at least $(COVERED_LEAST) % in each of these"
	@awk -v packages="$(COVERED)" -v least=$(COVERED_LEAST) -f .ci/coverage.awk .cache/cover-counted.out .cache/cover-faults.out
	@echo "==> promises: every one has its test, and the test ran"
	@$(TEST_ENV) SKILLRUN_TEST_RESULTS=$(CURDIR)/.cache/test.json SKILLRUN_TEST_MUTATION=later go test $(TEST_FLAGS) -run TestPromises ./docs/

COUNTING := -coverpkg=$(subst $(blank),$(comma),$(COVERED:%=./%))

# The two halves of make test, which runs them at the same time. The tests of cmd/skillrund take longest, and do not
# wait for the packages of the other half, which are compiled again to count statements. With more packages at a time, two
# processors do the same work more slowly: tests that wait for something look for it all the time.
.PHONY: test-counted test-uncounted
TESTED = $(TEST_ENV) gotestsum --format pkgname --jsonfile .cache/test-$(1).json -- $(TEST_FLAGS)
test-counted:
	@$(call TESTED,counted) -coverprofile=.cache/cover-counted.out $(COUNTING) -p 2 $(FIRST) $$(go list ./... | grep -vxF "$$(go list $(FIRST) $(UNCOUNTED))")

test-uncounted: mcp-clients
	@SKILLRUN_TEST_MUTATION=later $(call TESTED,uncounted) $(UNCOUNTED)
	@echo "==> test of the probe, with sandboxes that lack a layer"
	@$(call TESTED,faults) -coverprofile=.cache/cover-faults.out -tags $(TAGS),skillrun_faults -coverpkg=./sandbox/internal/preflight -run '^TestProbeNamesWhatIsWeak$$' ./sandbox

.PHONY: test-mutation
test-mutation: packages-test $(TOOLS)/gotestsum $(TOOLS)/grpcurl build ## Runs the hostile suite against daemons without a layer or a bound, as root
	@echo "==> mutations"
	@mkdir -p .cache
	@$(TEST_ENV) bash .ci/disk.sh gotestsum --format testname --jsonfile .cache/test-mutation.json -- $(TEST_FLAGS) -run '^TestMutation' ./cmd/skillrund
	@$(TEST_ENV) SKILLRUN_TEST_RESULTS=$(CURDIR)/.cache/test-mutation.json SKILLRUN_TEST_MUTATION=only go test $(TEST_FLAGS) -run TestPromises ./docs/

.PHONY: test-faults
test-faults: packages-test build ## Kills and starves the daemon and its parts, and its disk, under load, and prints a table of what was lost, as root
	@echo "==> faults"
	@$(TEST_ENV) SKILLRUN_TEST_FAULTS=whole go test -vet=off -count=1 -timeout 90m -parallel 4 -v -run '^(TestFaults|TestKeyModel|TestSessionModel)$$' ./cmd/skillrund

# AGENT is a directory with skills and commands, as cmd/skillrund/testdata/agent/README.md describes it.
.PHONY: test-agent
test-agent: packages-test build mcp-clients ## Has an agent over MCP do the commands in AGENT=DIR, with the skills there, as root
	@$(TEST_ENV) SKILLRUN_TEST_AGENT='$(abspath $(AGENT))' go test -count=1 -timeout 30m -v -run '^TestMCPAgentOfficialClient$$' ./cmd/skillrund

# CPYTHON='test_os test_io' runs these test files of CPython. Without it, all files in
# sandbox/internal/pyzygote/testdata/cpython/files run, in half an hour. make test runs the quick ones.
CPYTHON := all

.PHONY: test-cpython
test-cpython: packages-test ## Compares CPython's own tests in forked Pythons and in started ones, as root
	@SKILLRUN_CPYTHON='$(CPYTHON)' go test -count=1 -timeout 90m -v -run '^TestForkServerCPython$$' ./sandbox/internal/pyzygote/

# make test-cgroup2 RUN=TestX is like go test -run, for packages sandbox,
# sandbox/internal/{cgroup,mount,preflight,pyzygote}, internal/network and its gateway and helper, and
# cmd/skillrund (RUN='TestHostileFault/fault-04' is one case).
# Without RUN, .ci/cgroup2/plan.sh lists the tests. FLAGS are more flags for package
# sandbox's tests. CI uses CGROUP2_FORM=short; CGROUP2_FORM=all adds every test of package
# sandbox. CGROUP2_TIMEOUT is the time for the guest in seconds (540, or 1500 for all).
# The tests' logs are in .cache/cgroup2/logs.
.PHONY: test-cgroup2
test-cgroup2: packages-cgroup2 build ## Runs the hostile catalogue and the sandbox's tests on cgroup v2, in a virtual machine, as root
	@mkdir -p .cache/cgroup2
	@for package in sandbox sandbox/internal/cgroup sandbox/internal/mount sandbox/internal/preflight sandbox/internal/pyzygote internal/network internal/network/gateway internal/network/helper cmd/skillrund; do \
		CGO_ENABLED=1 go test -c -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o .cache/cgroup2/$${package##*/}.test ./$$package/; \
	done
	@mkdir -p .cache/cgroup2/faulty && CGO_ENABLED=1 go build -trimpath -tags $(TAGS),skillrun_faults -ldflags '$(LDFLAGS)' -o .cache/cgroup2/faulty/ ./cmd/skillrund ./cmd/skillrun-network
	@CGO_ENABLED=1 go test -c -trimpath -tags $(TAGS),skillrun_faults -ldflags '$(LDFLAGS)' -o .cache/cgroup2/faulty/sandbox.test ./sandbox/
	@CGROUP2_RUN='$(RUN)' CGROUP2_FLAGS='$(FLAGS)' bash .ci/cgroup2/run.sh

# What deploy/ promises of systemd: the start, a reload under load, a restart, a death.
.PHONY: test-systemd
test-systemd: packages-systemd build ## Runs the daemon as a service of a real systemd, in a virtual machine, as root
	@CGROUP2_FORM=systemd bash .ci/cgroup2/run.sh

# A wrong access to memory aborts, and undefined behaviour becomes an illegal instruction.
# Both end the sandbox. The binary is not static, because AddressSanitizer cannot be.
SANITIZED := CGO_CFLAGS='-O1 -g -fsanitize=address,undefined -fsanitize-undefined-trap-on-error' CGO_LDFLAGS=-static-libasan \
	go test -asan -count=1 -timeout 40m -tags $(TAGS)

.PHONY: test-sanitize
test-sanitize: packages-test ## Runs the sandbox's tests with AddressSanitizer and UBSan, as root
	@$(SANITIZED) -run '$(or $(RUN),.)' ./sandbox ./sandbox/internal/pid1

.PHONY: test-sanitize-short
test-sanitize-short: packages-test ## Runs one test of each kind of make test-sanitize, as CI does
	@$(SANITIZED) -run '^(TestEnds|TestPlans|TestGlobs|TestDir|TestProbe|TestPostureFromInside|TestCoreLimitStays|TestPrewarmedAttack)$$' ./sandbox

.PHONY: lint
lint: tools packages-test ## Checks format, Go and C code, the contract and its compatibility, and the shipped skills
	@echo "==> lint"
	@unformatted=$$(git ls-files -z '*.go' | grep -zv '\.pb\.go$$' | xargs -0r gofmt -l); \
		test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	@go vet ./...
	@staticcheck ./...
	@staticcheck -tags skillrun_faults ./sandbox/... ./internal/failpoint
	@bash .ci/analyze.sh
	@buf lint
	@go run ./cmd/skillrun validate --strict skills/*
	@$(MAKE) --no-print-directory breaking

# The contract since this commit may only grow. A clone without the commit compares with HEAD~1.
CONTRACT := 2271376efdcd5fa85c437880c1070c03077d69db

.PHONY: breaking
breaking: tools ## Refuses a change of the contract that breaks its users
	@for base in $(CONTRACT) HEAD~1; do \
		if git cat-file -e $$base:buf.yaml 2>/dev/null; then exec buf breaking --against ".git#ref=$$base"; fi; \
	done; echo "breaking: no earlier contract to compare with"

.PHONY: generate
generate: tools packages-generate ## Generates the Go and Python code of the contract
	@buf generate
	@buf build --as-file-descriptor-set --exclude-imports -o proto/skillrun/v1/descriptors.binpb
	@clients/python/generate.sh

.PHONY: drift
drift: generate ## Fails if the generated code is not what is committed
	@git diff --exit-code --stat -- proto clients/python/skillrun || { echo "generated code is stale: run make generate and commit"; exit 1; }

.PHONY: bench
bench: packages-test $(TOOLS)/runc build ## Measures every row of docs/performance.md, as root, in a quarter of an hour
	@bin/skillrun bench --runc $(TOOLS)/runc $(BENCH)

# More flags of skillrun bench: make bench BENCH='--rows true,python --n 50'
BENCH :=

.PHONY: bench-docs
bench-docs: packages-test $(TOOLS)/runc build ## Runs make bench and writes its table and picture into docs/performance.md
	@mkdir -p .cache
	@bin/skillrun bench --json --runc $(TOOLS)/runc --svg docs/performance.svg --into docs/performance.md $(BENCH) >.cache/bench.json

# make bench-turns BASE=v1.0 ROUNDS=5 BENCH='--rows true,python'
BASE := HEAD~1
ROUNDS := 3

.PHONY: bench-turns
bench-turns: packages-test $(TOOLS)/runc build ## Measures this tree in turns with the commit BASE, ROUNDS times, and compares their rows
	@.ci/bench-turns.sh '$(BASE)' '$(ROUNDS)' $(BENCH)

# The price of a boundary is the median of this many pairs of sandboxes.
BOUNDARIES := 200
# Sandboxes can lack a layer in a build with this tag only.
PRICES := go test -v -count=1 -timeout 60m -tags $(TAGS),skillrun_faults -ldflags '$(LDFLAGS)' -run '^TestPriceOfBoundaries$$' ./sandbox -args -version '$(VERSION)'

.PHONY: bench-boundaries
bench-boundaries: packages-build ## Measures the cost of each boundary and writes it into docs/performance.md, as root, in some minutes
	@echo "==> prices of boundaries, $(BOUNDARIES) pairs of each"
	@CGO_ENABLED=1 $(PRICES) -pairs $(BOUNDARIES) -prices $(CURDIR)/docs/performance.md

.PHONY: bench-smoke
bench-smoke: packages-test build ## Runs a short form of each benchmark; fails only if one cannot be measured
	@echo "==> benchmark, short form"
	@bin/skillrun bench --short $(BENCH)
	@CGO_ENABLED=1 $(PRICES) -pairs 2
	@go test -run '^$$' -bench "True|Append|Read$$" -benchtime 5x ./sandbox/ ./internal/record/

# MINUTES is the time for which the daemon has load.
MINUTES := 4

.PHONY: dashboard
dashboard: packages-test build ## Draws docs/dashboard.svg: the Grafana dashboard with the data of a daemon under load, as root
	@bash deploy/dashboard.sh docs/dashboard.svg $(MINUTES)

.PHONY: fuzz
fuzz: packages-build ## Runs every fuzz test, FUZZTIME each (1m)
	@bash .ci/fuzz.sh

.PHONY: vuln
vuln: $(TOOLS)/govulncheck ## Looks for known vulnerabilities in called code; needs the Go vulnerability database
	@echo "==> vuln"
	@bash .ci/vuln.sh

.PHONY: release
release: packages-build packages-wheel ## Builds static, stripped binaries, their parts lists and checksums into dist/
	@bash deploy/release.sh dist

.PHONY: release-check
release-check: packages-build packages-wheel ## Builds a release twice, in different directories, and compares the bytes
	@bash deploy/release.sh --check dist

.PHONY: tools
tools: $(TOOLS)/gotestsum $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc $(TOOLS)/grpcurl $(TOOLS)/staticcheck

$(patsubst tool.%,$(TOOLS)/%,$(filter tool.%,$(.VARIABLES))): $(TOOLS)/%: Makefile
	@echo "==> tool $(tool.$*)"; GOBIN=$(TOOLS) go install $(tool.$*) && touch $@

$(TOOLS)/runc: Makefile | packages-build
	@echo "==> $(RUNC)"; GOBIN=$(TOOLS) CGO_ENABLED=1 go install -tags seccomp $(RUNC) && touch $@

# Debian's Prometheus, for the tests of the metrics.
$(TOOLS)/promtool: deploy/programs.sh
	@bash deploy/programs.sh $(TOOLS) prometheus prometheus promtool && touch $@

# A name server and a web server, for the tests of sandboxes' networks.
$(TOOLS)/unbound: deploy/programs.sh
	@bash deploy/programs.sh $(TOOLS) unbound unbound && touch $@
$(TOOLS)/nginx: deploy/programs.sh
	@bash deploy/programs.sh $(TOOLS) nginx nginx && touch $@

# Packages from npm for the tests of MCP: the official client, the Inspector, and the Node.js
# that these need. The lock file has the versions and the hashes; no script of a package runs.
MCP_CLIENTS := cmd/skillrund/testdata/mcpclients

.PHONY: mcp-clients
mcp-clients: packages-test $(TOOLS)/mcpclients/installed ## Installs clients of MCP from npm, for the tests

$(TOOLS)/mcpclients/installed: $(MCP_CLIENTS)/package.json $(MCP_CLIENTS)/package-lock.json
	@echo "==> npm packages of $(MCP_CLIENTS)"
	@mkdir -p $(@D) && cp $^ $(@D)/ && npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel error && touch $@

.PHONY: packages-build packages-wheel packages-test packages-generate packages-cgroup2 packages-systemd
packages-build: ; @bash deploy/packages.sh $(BUILD_PACKAGES)
packages-wheel: ; @bash deploy/packages.sh $(WHEEL_PACKAGES)
packages-test: $(TOOLS)/promtool $(TOOLS)/unbound $(TOOLS)/nginx ; @bash deploy/packages.sh $(TEST_PACKAGES) $(CPYTHON_TESTS) node:nodejs npm:npm
packages-generate: ; @bash deploy/packages.sh $(GENERATE_PACKAGES)

packages-cgroup2: ; @bash deploy/packages.sh $(CGROUP2_PACKAGES)
packages-systemd: ; @bash deploy/packages.sh $(CGROUP2_PACKAGES) systemd

.PHONY: clean
clean: ## Removes what was built
	@rm -rf bin dist .tools .cache
