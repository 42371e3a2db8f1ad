# The front door. `make help` lists the targets; each does the set-up that it needs and nothing twice.
# People who prefer CMake: cmake --preset release, see CMakePresets.json.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
PREFIX ?= /usr/local
SEEDS ?= 5

configure = cmake --preset $(1) $(if $(VERBOSE),,--log-level=WARNING) >$(2).log 2>&1 || { cat $(2).log >&2; exit 2; }
# A configured tree reconfigures itself when a CMake file changes; this only spares the first step.
define build
	@mkdir -p build
	@[ -f $(2)/build.ninja ] || { $(call configure,$(1),build/configure-$(1)); }
	@cmake --build $(2) --parallel $(JOBS) $(3)
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what is missing from the distribution's packages (root or sudo)
	@scripts/setup.sh build

.PHONY: build
build: setup ## build the library, the program, tests and benchmarks into build/
	$(call build,release,build)

.PHONY: demo
demo: setup ## the main job on real data: an A/B convergence test, report in demo/report.html
	$(call build,release,build,--target gradwire_program)
	@scripts/demo.sh

.PHONY: test
test: build ## every test, the Python package's too, then the library's under AddressSanitizer + UBSan and ThreadSanitizer
	@scripts/test.sh build release
	@scripts/setup.sh build python
	@scripts/python.sh test
	@$(MAKE) --no-print-directory asan tsan

.PHONY: python
python: ## build the Python package and install it into .venv
	@scripts/setup.sh build python
	@scripts/python.sh

.PHONY: asan
asan: setup ## the library's tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call build,asan,build/asan)
	@scripts/test.sh build/asan asan

.PHONY: tsan
tsan: setup ## the library's threaded tests under ThreadSanitizer
	$(call build,tsan,build/tsan)
	@scripts/test.sh build/tsan tsan

.PHONY: bench
bench: setup ## micro-benchmarks of every codec function, one core, 64 MiB; build/bench/bench.jsonl
	$(call build,release,build,--target gradwire_bench)
	@build/bench/gradwire_bench --json build/bench/bench.jsonl

.PHONY: lab
lab: ## methods against dense over shaped links, in network namespaces (root); build/lab/lab.jsonl
# Anyone else is told why it is skipped, which takes no build.
ifeq ($(shell id -u),0)
	@scripts/setup.sh build lab
	$(call build,release,build,--target gradwire_program)
endif
	@bench/lab/run.sh

.PHONY: lint
lint: ## formatting, static analysis and the architecture checks
	@scripts/setup.sh build lint
	@mkdir -p build
	@$(call configure,lint,build/configure-lint)
	@scripts/lint.sh build/lint

.PHONY: install
install: setup ## install library, headers, CMake package and program under PREFIX
	$(call build,release,build)
	@cmake --install build --prefix $(PREFIX)

.PHONY: clean
clean: ## remove build/ and demo/
	@rm -rf build demo
