# Each target has a description; `make help` lists them.
SHELL  := /bin/bash
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$$PATH")
GO     ?= $(shell scripts/find-go.sh 2>/dev/null || echo go)
export GOTOOLCHAIN ?= auto
STAGE  := scripts/stage.sh
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
export CGO_ENABLED := 0
# Compiled files do not contain the path of their folder, so that all clones,
# the copy for the tests without root, and the test cluster share one build
# cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
RUN_TESTS := scripts/run-tests.sh

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The targets install their needs on this machine; see scripts/install-deps.sh.
.PHONY: deps-build deps-demo deps-cluster deps-generate deps-vm-kernel deps-test
deps-build deps-demo deps-cluster deps-generate deps-vm-kernel deps-test:
	@scripts/install-deps.sh $(@:deps-%=%)

# The experiment needs root at its end. Say so before the build.
.PHONY: may-be-root
may-be-root:
	@[ "$$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -v; } || { echo "this makes cgroups, which needs root: run make as root, or as a user who may use sudo" >&2; exit 1; }

.PHONY: demo
demo: may-be-root deps-demo ## install what is missing, build, measure this machine for ten minutes, say three sentences
	$(MAKE) --no-print-directory build
	$(SUDO) bin/tenon lab colocation --max-time 12m

.PHONY: build
build: deps-build ## build bin/tenon, bin/tenond, bin/tenon-manager and bin/kubectl-tenon
	@echo "build: the first build fetches and compiles all packages, which takes minutes and prints nothing meanwhile"
	$(GO) build -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/...

# The scheduler consists of Kubernetes, so it is a module of its own. With these
# flags it shares the compiled packages with the programs of the test cluster.
K8S := $(shell sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\)$$|\1|p' scheduler/go.mod)
K8S_STAMP := -X k8s.io/component-base/version.gitVersion=$(K8S) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(K8S)))
.PHONY: scheduler scheduler-build
scheduler: deps-build scheduler-build ## build bin/tenon-scheduler, and test its plugin (a module of its own; takes minutes once)
	cd scheduler && $(GO) vet ./... && $(GO) test -vet=off ./...
scheduler-build:
	cd scheduler && $(GO) build -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION) $(K8S_STAMP)" -o ../bin/ ./cmd/tenon-scheduler

# The budgets are twice what the stages take on a machine of two CPUs, and for what
# a first run builds and fetches half as much again as that took
# (docs/experiments/2026-11-23-build-and-test-times). The tests of cluster and vm end
# a minute earlier by themselves, so that they say where they were. The stages after
# vet do not run go vet again (-vet=off).
#
# The virtual machines compute, and the tests without root often wait, so they run
# beside each other (decision 92). The tests as root and those of the cluster have
# the machine alone: what Tenon gives to batch work depends on what else runs.
.PHONY: test test-stages test-apart test-guests
test: ## install what is missing, run the tests: as a user, as root, on Kubernetes, in a VM, and a short experiment
	@scripts/test.sh $(MAKE) --no-print-directory test-stages
test-stages:
	@$(STAGE) tools 5m scripts/install-deps.sh test
	@$(STAGE) vet 12m $(MAKE) --no-print-directory vet lint
	@$(STAGE) vm-kernel 6m $(MAKE) --no-print-directory vm-kernel
	@$(STAGE) cluster-build 20m $(MAKE) --no-print-directory cluster-build
	@$(MAKE) --no-print-directory -j2 test-apart test-guests
	@$(STAGE) root 10m $(MAKE) --no-print-directory root-test ROOT_ONLY=bin/skipped-as-user
	@$(STAGE) cluster 10m $(MAKE) --no-print-directory cluster-test
test-apart:
	@$(STAGE) user 10m $(MAKE) --no-print-directory user-test
	@$(STAGE) chart 6m $(MAKE) --no-print-directory chart
	@$(STAGE) scheduler 10m $(MAKE) --no-print-directory scheduler
test-guests:
	@$(STAGE) vm 16m nice -n 5 $(MAKE) --no-print-directory vm

# The tests of which make test runs some for each commit (test/turn), and the
# tests that take hours.
.PHONY: soak
soak: deps-build ## hours: every test on every kernel, long runs, 1000 cycles of the scheduler, 5000 nodes; SOAK_STAGES="root vm" runs some
	scripts/soak.sh $(SOAK_STAGES)

.PHONY: vm-kernel
vm-kernel: deps-build ## fetch the kernels and the emulator of the VM tests
	@for series in "" 7.3 6.1; do test/vm/kernel.sh $$series || exit; done
	@test/vm/qemu.sh

# The tests use this kernel if it is there, and make soak needs it.
.PHONY: vm-kernel-built
vm-kernel-built: deps-vm-kernel ## build the kernel of the VM tests that Debian has not (once, ten minutes)
	@test/vm/kernel.sh 6.12

.PHONY: user-test
user-test: deps-build ## the tests without root; bin/user.log has all that they print
	@rm -f bin/skipped-as-user
	$(RUN_TESTS) -once -skipped bin/skipped-as-user bin/user.log ./... -- scripts/test-user.sh
	@sed -i '\,/\(test/vm\|test/cluster\|internal/cluster/manager\|internal/cluster/admission/server\) ,d' bin/skipped-as-user # which other stages run

# One package goes after the other (-p 1): they share the machine's cgroups.
# In make test the tests are those that the user stage skipped (ROOT_ONLY): a test
# that root changes anything for skips without root (CONTRIBUTING, rule 8). make
# soak runs all of them.
ROOT_PACKAGES = ./...
ROOT_ONLY =
.PHONY: root-test
root-test: deps-test ## the tests as root; bin/root.log has all that they print
	@$(GO) run -exec "$(SUDO)" ./test/cluster/cmd sweep
	$(RUN_TESTS) $(if $(ROOT_ONLY),-only $(ROOT_ONLY) bin/root.log,bin/root.log $(ROOT_PACKAGES)) -- $(SUDO) env TENON_TEST_STRICT=1 $(GO) test -json -vet=off -p 1 -count=1 -timeout 10m

.PHONY: vm
vm: deps-test ## the tests in virtual machines; bin/vm.log has all that they print
	$(RUN_TESTS) bin/vm.log ./test/vm -- env TENON_TEST_STRICT=1 TENON_TEST_VM=1 $(GO) test -json -vet=off -count=1 -timeout 15m

.PHONY: cluster-build
cluster-build: deps-cluster ## build the programs of the test cluster: Kubernetes, etcd, containerd, runc (once; takes long)
	@test/cluster/build/build.sh

.PHONY: cluster
cluster: cluster-build cluster-tools ## a real Kubernetes on this machine, left running; TENON=1 installs Tenon in it, NODES=n makes more than one node, SYSTEM_CPUS=0 keeps it off the pods' CPUs, KUBE_PROXY=1 makes node ports of services work, SCHEDULER=1 beside TENON=1 adds tenon-scheduler
	$(SUDO) bin/cluster up -nodes $(or $(NODES),1) -system-cpus "$(SYSTEM_CPUS)" $(if $(KUBE_PROXY),-kube-proxy)
	$(if $(TENON),$(SUDO) bin/cluster tenon $(if $(SCHEDULER),-scheduler) $(VERSION))

# What its commands need: helm, kubectl tenon and, with TENON=1, Tenon's images.
# The list is a variable because a comma ends an argument of $(if).
TENON_IMAGES = tenond,tenon-manager$(if $(SCHEDULER),$(comma)tenon-scheduler)
comma = ,
.PHONY: cluster-tools
cluster-tools: deps-cluster
	@echo "cluster: compiling bin/cluster, kubectl tenon, helm and the images: some minutes the first time"
	$(GO) build -o bin/cluster ./test/cluster/cmd
	$(GO) build -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/kubectl-tenon
	cd test/chart && $(GO) build -o ../../bin/helm helm.sh/helm/v4/cmd/helm
	$(if $(TENON),$(GO) run ./deploy/image -version $(VERSION) -arch $(shell $(GO) env GOARCH) -only $(TENON_IMAGES) -out bin/images)

.PHONY: cluster-down
cluster-down: ## end that cluster and remove every trace
	@if [ -x bin/cluster ]; then $(SUDO) bin/cluster down; else echo "cluster-down: no bin/cluster here: make cluster has started none from this folder"; fi

# Beside the tests that have nodes, which mostly wait, run those that have an API
# server alone: neither writes to cgroups of the other.
.PHONY: cluster-test
cluster-test: deps-test ## the tests on a real Kubernetes; bin/cluster.log has all that they print
	$(RUN_TESTS) bin/cluster.log ./test/cluster/... ./internal/cluster/manager ./internal/cluster/admission/server -- $(SUDO) env TENON_TEST_STRICT=1 TENON_TEST_CLUSTER=1 $(GO) test -json -vet=off -p 2 -parallel 3 -count=1 -timeout 9m

.PHONY: unit
unit: deps-build ## the fast tests: no root, no VM
	$(GO) test ./...

.PHONY: vet
vet: deps-build ## formatting, go vet, and the form of the commits
	@scripts/check-commits.sh
	@bad=$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not formatted: $$bad"; exit 1; }
	$(GO) vet ./...

.PHONY: lint
lint: deps-build ## golangci-lint with the project's few rules (fetches the linter once)
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

.PHONY: image
image: deps-build ## the container images as OCI archives in bin/images, for amd64 and arm64, without a daemon
	$(GO) run ./deploy/image -version $(VERSION)

# The times in the files are that of the commit. Set SOURCE_DATE_EPOCH to build from
# sources without their history.
.PHONY: release
release: deps-build ## everything of a release in bin/release: VERSION=v1.2.3; REGISTRY=host/path and DOWNLOADS=URL say where it will be
	@[ -z "$$(git status --porcelain)" ] || { echo "release: commit first, or the sources of this release are lost"; git status --short; exit 1; }
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(GO) run ./deploy/release -version $(VERSION) -registry "$(REGISTRY)" -downloads "$(DOWNLOADS)" $(RELEASE_FLAGS)
	@scripts/vulnerabilities.sh

.PHONY: release-push
release-push: deps-build ## push bin/release to REGISTRY=host/path: the images by tag and digest, the chart as REGISTRY/charts/tenon
	$(GO) run ./deploy/push -registry "$(REGISTRY)"

.PHONY: chart
chart: deps-build ## test the Helm chart, by Helm's own library (a module of its own)
	cd test/chart && $(GO) vet ./... && $(GO) test -vet=off ./... && $(GO) build -o $${XDG_CACHE_HOME:-$$HOME/.cache}/tenon/helm helm.sh/helm/v4/cmd/helm

.PHONY: fuzz
fuzz: deps-build ## every fuzz test for FUZZTIME each (default 1m)
	scripts/fuzz.sh $(or $(FUZZTIME),1m)

.PHONY: generate
generate: deps-generate ## compile bpf/ again; the result is committed, and a test compares
	$(GO) generate ./internal/kernel/exchange ./internal/kernel/rqdelay ./internal/kernel/scx

.PHONY: generate-api
generate-api: deps-build ## what is made of api/: deep copies and the CRDs in deploy/crds; committed, and a test compares
	$(GO) run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=./api/... output:crd:dir=deploy/crds

.PHONY: golden
golden: deps-build ## rewrite golden files and scenarios; review the diff
	$(GO) test ./internal/decide/policy ./internal/lab/colocation ./internal/lab/memory ./internal/lab/reaction ./internal/config ./internal/cluster/admission ./internal/cluster/podpages ./internal/agent/top ./internal/agent/record -update
	cd test/chart && $(GO) test . -update

.PHONY: clean
clean: ## remove what was built here (not the cache)
	rm -rf bin
