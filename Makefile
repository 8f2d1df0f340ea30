# Cove. "make help" lists the targets.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/cove-sandbox/cove/internal/version.Version=$(VERSION)
FUZZTIME ?= 10s

export CGO_ENABLED = 0

.PHONY: help build check test demo recording bench lint fuzz install clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## bin/cove, bin/cove-guest and bin/cove-worker, static
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

check: ## formatting, vet, the layers and the quick tests, while working
	@scripts/check.sh

test: ## every test; installs what it needs when root
	@scripts/test.sh

demo: build ## run code contained, and show what is stopped
	@scripts/install.sh demo
	@scripts/agents.sh || echo "demo: agents could not be installed, so Cove's own is shown alone" >&2
	@$(GO) run ./test/demo

recording: build ## docs/recording.svg, of a real run
	@scripts/install.sh demo
	@scripts/agents.sh
	@$(GO) run ./test/demo -record docs/recording.svg

bench: build ## Cove beside bubblewrap, runc and docker, and beside mitmproxy
	@scripts/install.sh bench
	@scripts/agents.sh || echo "bench: agents could not be installed, so they are not measured" >&2
	@$(GO) run ./test/bench

lint: ## formatting, vet, and the shape of the house
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(GO) vet ./...
	$(GO) vet -C test/clients ./...
	$(GO) test -count=1 ./internal/archtest

fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

install: build ## copy the binaries to PREFIX/bin (/usr/local)
	install -D -t $(DESTDIR)$(or $(PREFIX),/usr/local)/bin bin/cove bin/cove-guest bin/cove-worker
	ln -sf cove $(DESTDIR)$(or $(PREFIX),/usr/local)/bin/git-remote-cove

clean: ## remove what was built
	rm -rf bin .cache
