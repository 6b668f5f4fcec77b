# Every target says what it does; `make help` lists them.
SHELL  := /bin/bash
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$$PATH")
GO     ?= $(shell scripts/find-go.sh 2>/dev/null || echo go)
export GOTOOLCHAIN ?= auto
STAGE  := scripts/stage.sh
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
export CGO_ENABLED := 0

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## install what is missing, build, run the three-mode experiment on this machine
	scripts/install-deps.sh demo
	$(MAKE) --no-print-directory build
	$(SUDO) bin/tenon lab colocation --blocks 4 --duration 10s --max-time 7m

.PHONY: build
build: ## build bin/tenon and bin/tenond
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/...

.PHONY: test
test: ## install what is missing, run every test: as a user, as root, on Kubernetes, in a VM, and a short experiment
	$(STAGE) tools 10m scripts/install-deps.sh test
	$(STAGE) vet 20m $(MAKE) --no-print-directory vet lint
	$(STAGE) user 15m scripts/test-user.sh
	$(STAGE) chart 20m $(MAKE) --no-print-directory chart
	$(STAGE) cluster-build 30m $(MAKE) --no-print-directory cluster-build
	$(STAGE) root 30m $(MAKE) --no-print-directory root-test
	$(STAGE) cluster 20m $(MAKE) --no-print-directory cluster-test
	$(STAGE) vm-kernel 30m $(MAKE) --no-print-directory vm-kernel
	$(STAGE) vm 40m $(MAKE) --no-print-directory vm

.PHONY: vm-kernel
vm-kernel: ## fetch the kernels and the emulator of the VM tests, and build the kernel that Debian has not (once)
	@for series in "" 7.3 6.1; do test/vm/kernel.sh $$series || exit; done
	@test/vm/qemu.sh
	@test/vm/kernel.sh 6.12

# One package goes after the other (-p 1): they share the machine's cgroups.
.PHONY: root-test
root-test: ## the tests as root; bin/root.log has all that they print
	$(GO) run ./test/digest bin/root.log ./... -- $(SUDO) env TENON_TEST_STRICT=1 $(GO) test -json -p 1 -count=1 -timeout 10m

.PHONY: vm
vm: ## the tests in virtual machines; bin/vm.log has all that they print
	$(GO) run ./test/digest bin/vm.log ./test/vm -- env TENON_TEST_STRICT=1 TENON_TEST_VM=1 $(GO) test -json -count=1 -timeout 39m

.PHONY: cluster-build
cluster-build: ## build the programs of the test cluster: Kubernetes, etcd, containerd, runc (once; takes long)
	@test/cluster/build/build.sh

.PHONY: cluster
cluster: cluster-build ## a real Kubernetes on this machine, left running; NODES=n for more than one node, SYSTEM_CPUS=0 keeps it off the pods' CPUs
	$(GO) build -trimpath -o bin/cluster ./test/cluster/cmd
	$(SUDO) bin/cluster up -nodes $(or $(NODES),1) -system-cpus "$(SYSTEM_CPUS)"

.PHONY: cluster-down
cluster-down: ## end that cluster and remove every trace
	$(SUDO) bin/cluster down

.PHONY: cluster-test
cluster-test: ## the tests on a real Kubernetes; bin/cluster.log has all that they print
	$(GO) run ./test/digest bin/cluster.log ./test/cluster/... -- $(SUDO) env TENON_TEST_STRICT=1 TENON_TEST_CLUSTER=1 $(GO) test -json -count=1 -timeout 19m

.PHONY: unit
unit: ## the fast tests: no root, no VM
	$(GO) test ./...

.PHONY: vet
vet: ## formatting and go vet
	@bad=$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not formatted: $$bad"; exit 1; }
	$(GO) vet ./...

.PHONY: lint
lint: ## golangci-lint with the project's few rules (fetches the linter once)
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

.PHONY: image
image: ## the container images as OCI archives in bin/images, for amd64 and arm64, without a daemon
	$(GO) run ./deploy/image -version $(VERSION)

.PHONY: chart
chart: ## test the Helm chart, by Helm's own library (a module of its own)
	cd test/chart && $(GO) vet ./... && $(GO) test ./... && $(GO) build -o $${XDG_CACHE_HOME:-$$HOME/.cache}/tenon/helm helm.sh/helm/v4/cmd/helm

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME each (default 1m)
	scripts/fuzz.sh $(or $(FUZZTIME),1m)

.PHONY: generate
generate: ## compile bpf/ again (needs clang-19 llvm-19 libbpf-dev); the result is committed, and a test compares
	$(GO) generate ./internal/probe ./internal/scx

.PHONY: generate-api
generate-api: ## what is made of api/: deep copies and the CRDs in deploy/crds; committed, and a test compares
	$(GO) run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=./api/... output:crd:dir=deploy/crds

.PHONY: golden
golden: ## rewrite golden files and scenarios; review the diff
	$(GO) test ./internal/policy ./internal/lab/report ./internal/config ./internal/admission ./internal/top -update
	cd test/chart && $(GO) test . -update

.PHONY: clean
clean: ## remove what was built here (not the cache)
	rm -rf bin
