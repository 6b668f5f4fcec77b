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
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## install what is missing, build, run the three-mode experiment on this machine
	scripts/install-deps.sh demo
	$(MAKE) --no-print-directory build
	$(SUDO) bin/tenon lab colocation --blocks 4 --duration 10s --max-time 7m

.PHONY: build
build: ## build bin/tenon and bin/tenond
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/...

# As root one package goes after the other (-p 1): they share the machine's cgroups.
.PHONY: test
test: ## install what is missing, run every test: as a user, as root, in a VM, and a short experiment
	$(STAGE) tools 10m scripts/install-deps.sh test
	$(STAGE) vet 10m $(MAKE) --no-print-directory vet lint
	$(STAGE) user 10m scripts/test-user.sh
	$(STAGE) root 20m $(SUDO) env TENON_TEST_STRICT=1 $(GO) test -p 1 -count=1 -timeout 10m ./...
	$(STAGE) vm-kernel 30m $(MAKE) --no-print-directory vm-kernel
	$(STAGE) vm 40m $(MAKE) --no-print-directory vm

.PHONY: vm-kernel
vm-kernel: ## fetch the kernels and the emulator of the VM tests, and build the kernel that Debian has not (once)
	@for series in "" 7.3 6.1; do test/vm/kernel.sh $$series || exit; done
	@test/vm/qemu.sh
	@test/vm/kernel.sh 6.12

.PHONY: vm
vm: ## the tests in virtual machines; bin/vm.log has all that they print
	set -o pipefail; TENON_TEST_STRICT=1 TENON_TEST_VM=1 $(GO) test -json -count=1 -timeout 39m ./test/vm | $(GO) run ./test/digest bin/vm.log

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

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME each (default 1m)
	scripts/fuzz.sh $(or $(FUZZTIME),1m)

.PHONY: generate
generate: ## compile bpf/ again (needs clang-19 llvm-19 libbpf-dev); the result is committed
	$(GO) generate ./internal/probe ./internal/scx

.PHONY: golden
golden: ## rewrite golden files and scenarios; review the diff
	$(GO) test ./internal/policy ./internal/lab/report ./internal/config ./internal/top -update

.PHONY: clean
clean: ## remove what was built here (not the cache)
	rm -rf bin
