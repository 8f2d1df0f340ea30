# Cove. "make help" lists the targets.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/cove-sandbox/cove/internal/version.Version=$(VERSION)
FUZZTIME ?= 10s
SOAK ?= 1h
ENGINE ?= native
GOVULNCHECK ?= v1.1.4
GOLANGCI_LINT ?= v2.15.0

export CGO_ENABLED = 0

.PHONY: help build run check test soak demo recording bench bench-compare bench-soak lint vulncheck fuzz dist install uninstall clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: ## bin/cove, bin/cove-server, bin/cove-guest and bin/cove-worker, static
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

run: build ## serve the HTTP API, with what was built
	bin/cove serve

check: ## formatting, vet, the layers and the quick tests, while working
	@scripts/check.sh

test: ## every test; installs what it needs when root
	@scripts/test.sh

soak: ## load a server and kill it again and again, for SOAK (1h), on ENGINE (native)
	COVE_SOAK=$(SOAK) COVE_SOAK_ENGINE=$(ENGINE) $(GO) test -count=1 -v -timeout 0 ./test/soak

demo: build ## run code contained, and show what is stopped
	@scripts/install.sh demo
	@scripts/agents.sh || echo "demo: agents could not be installed, so Cove's own is shown alone" >&2
	@$(GO) run ./test/demo

recording: build ## docs/recording.svg, of a real run
	@scripts/install.sh demo
	@scripts/agents.sh
	@$(GO) run ./test/demo -record docs/recording.svg

OUT   ?= bench-results
PAIRS ?= 60
RUNS  ?= 20000

bench: build ## Cove beside plain processes and other sandboxes, in OUT (bench-results): a table, JSON, charts
	@scripts/install.sh bench
	@scripts/agents.sh || echo "bench: agents could not be installed, so they are not measured" >&2
	@$(GO) run ./test/bench -out $(OUT)

bench-compare: build ## fail where NEW (bin) is 10 % slower than OLD; each a directory of programs or a git revision
	@$(GO) run ./test/bench compare -pairs $(PAIRS) "$(OLD)" $(NEW)

bench-soak: build ## RUNS (20000) single-use runs, and fail if anything is left of them
	@$(GO) run ./test/bench soak -runs $(RUNS)

lint: ## formatting, vet, golangci-lint, and the shape of the house
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(GO) vet ./...
	$(GO) vet -C test/clients ./...
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT) run ./...
	$(GO) test -count=1 ./internal/archtest

vulncheck: ## look for known vulnerabilities that the programs reach; VULNDB is another database
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) $(if $(VULNDB),-db $(VULNDB)) ./...

dist: ## archives, Debian packages, bills of materials and checksums of a release, in dist/
	@cd packaging/dist && $(GO) run . -out ../../dist

fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

BIN     ?= bin
PREFIX  ?= /usr/local
PROGRAMS = cove cove-server cove-guest cove-worker

install: ## copy what "make build" has built to PREFIX/bin (/usr/local); needs no Go
	@for p in $(PROGRAMS); do test -x $(BIN)/$$p || { echo "$(BIN)/$$p is not there: run \"make build\" first, as yourself" >&2; exit 1; }; done
	install -D -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS:%=$(BIN)/%)
	ln -sf cove $(DESTDIR)$(PREFIX)/bin/git-remote-cove

uninstall: ## remove the programs from PREFIX/bin; asks about what Cove keeps (/var/lib/cove)
	rm -f $(PROGRAMS:%=$(DESTDIR)$(PREFIX)/bin/%) $(DESTDIR)$(PREFIX)/bin/git-remote-cove
	@scripts/forget.sh "$(DESTDIR)"

clean: ## remove what was built
	rm -rf bin dist .cache
