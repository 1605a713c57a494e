# The front door: `make help` lists what there is. Everything runs on the Node that the packages bring, which npm puts
# first on the path of its scripts, so any Node from 20 on will do to begin with.

SHELL := /bin/sh
.DEFAULT_GOAL := help
RUN := npm run --silent

.PHONY: help run test test-quick check ci browser faults soak replicas citus connectors deploy contract mutants mutants-code sdks validators proxy mock contract-diff changelog contract-release bench bench-quick bench-smoke bench-ablation bench-growth bench-processes package image format generate sbom clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-17s %s\n", $$1, $$2 }'

# Installs what a lock file says whenever it has changed since the last time.
node_modules/.installed: package.json package-lock.json
	npm ci --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

tests/contract/proxy/node_modules/.installed: tests/contract/proxy/package.json tests/contract/proxy/package-lock.json
	npm ci --prefix tests/contract/proxy --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

run: node_modules/.installed ## Start the service with demo data on the embedded PostgreSQL; Ctrl-C stops it
	@# In place of the shell, and without npm, which ends on SIGTERM and leaves the server running.
	@LOG_LEVEL=$${LOG_LEVEL:-warn} exec bin/flowtrail serve --demo

test: node_modules/.installed ## Run all tests on the embedded PostgreSQL, or on TEST_DATABASE_URL when it is set
	@$(if $(RECORD),RECORD_EXCHANGES="$(abspath $(RECORD))") $(RUN) test

test-quick: node_modules/.installed ## Run the tests that import what has changed since the last commit, all if nothing has, except slow ones
	@$(RUN) test:quick -- $(if $(shell git status --porcelain),--changed)

check: node_modules/.installed bench/node_modules/.installed ## Check format, lint, types, imports, unused code, the contract, and that generated files are up to date
	@$(RUN) check

browser: node_modules/.installed ## Test /docs in headless Chromium: operations, errors, keyboard, phone, accessibility
	@$(RUN) test:browser

faults: node_modules/.installed ## Attack a running service, and measure what its users notice (LONG=yes: for longer; SEED=n)
	@$(RUN) test:trials

replicas: node_modules/.installed ## Read back 100,000 writes through three processes and two standby servers that lag, freeze and are promoted
	@LONG=yes $(RUN) test:trials tests/faults/trials/replicas.test.ts

citus: node_modules/.installed bench/node_modules/.installed ## Run tests and a benchmark on the Citus cluster of TEST_CITUS_URL (see CONTRIBUTING.md)
ifdef TEST_CITUS_URL
	@$(RUN) test:citus
	@$(RUN) bench -- --citus
else
	@echo 'not run: set TEST_CITUS_URL to the nodes of a Citus cluster, the coordinator first: CONTRIBUTING.md says more'
endif

soak: node_modules/.installed ## Ten minutes of mixed load, with the demo's live visitors, after which the service holds no more than before
	@LONG=yes $(RUN) test:trials tests/faults/trials/soak.test.ts

connectors: node_modules/.installed ## Copy a project by the programs in connectors/, and compare (needs Python 3.11)
	@$(RUN) test:connectors

deploy: node_modules/.installed ## Test what is in deploy/ with nginx, Caddy, Prometheus, PgBouncer, PostgreSQL 15 and systemd's tools (needs Debian's packages of them, and Go)
	@$(RUN) test:deploy

contract: node_modules/.installed ## Fuzz the service against its document with schemathesis (needs Python 3.11 with venv)
	@$(RUN) contract

mutants: node_modules/.installed tests/contract/proxy/node_modules/.installed ## Run the service with one deliberate defect at a time and show which checks detect it (ONLY=name)
	@$(RUN) mutants

mutants-code: node_modules/.installed ## Make one small mistake at a time in the changed sources, and see a test fail (ONLY=src/domain,… VERBOSE=1 MINUTES=n)
	@$(RUN) mutants:code

sdks: node_modules/.installed ## Test clients from third-party generators, and a Postman collection, against the service (ONLY=name, VERBOSE=1)
	@$(RUN) sdks
	$(if $(ONLY),,@$(RUN) postman)

validators: node_modules/.installed ## Let third-party validators judge right and wrong responses by the strict document (needs Python and Go)
	@$(RUN) validators

proxy: node_modules/.installed tests/contract/proxy/node_modules/.installed ## Send all HTTP traffic of the tests through Prism (RECORDED=directory, see CONTRIBUTING.md)
	@$(RUN) proxy -- $(RECORDED)

mock: node_modules/.installed tests/contract/proxy/node_modules/.installed ## Follow docs/contract-testing.md as a client team would, with Prism's mock
	@$(RUN) test:mock

contract-diff: node_modules/.installed ## Compare the document with the released one: no breaking change, the right version, an up-to-date CHANGELOG
	@$(RUN) contract:diff

changelog: node_modules/.installed ## Write the document's changes since the release into CHANGELOG.md
	@$(RUN) contract:diff -- --write

contract-release: node_modules/.installed ## Release the document (BREAKING=yes: even if it breaks clients)
	@$(RUN) contract:diff -- --release $(if $(BREAKING),--breaking)

bench/node_modules/.installed: bench/package.json bench/package-lock.json
	npm ci --prefix bench --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

bench: node_modules/.installed bench/node_modules/.installed ## Benchmark the service against its peers (docs/performance.md); twenty minutes
	@$(RUN) bench

bench-quick: node_modules/.installed bench/node_modules/.installed ## The same benchmark with shorter rounds; three minutes
	@$(RUN) bench -- --quick

bench-ablation: node_modules/.installed bench/node_modules/.installed ## Measure what each optimisation gains on its own load; ten minutes
	@$(RUN) bench -- --ablation $(if $(ONLY),--only "$(ONLY)")

bench-smoke: node_modules/.installed bench/node_modules/.installed ## Start every peer, compare all responses, and run each benchmark for a second
	@$(RUN) bench -- --smoke
	@$(RUN) bench -- --smoke --ablation
	@$(RUN) bench -- --smoke --processes --seconds 2

bench-growth: node_modules/.installed bench/node_modules/.installed ## Measure the cost of each operation by the amount of data, up to a million events in three quarters of an hour, or EVENTS=10000000 in longer
	@$(RUN) bench -- --growth $(if $(EVENTS),--events $(EVENTS))

bench-processes: node_modules/.installed bench/node_modules/.installed ## Measure how much three processes on one database record compared with one; ten minutes
	@$(RUN) bench -- --processes

ci: check contract-diff test browser ## What of CI needs nothing but npm and Chromium

format: node_modules/.installed ## Format, and apply safe lint fixes
	@$(RUN) format

generate: node_modules/.installed ## Regenerate generated/ and the import table and picture of ARCHITECTURE.md
	@$(RUN) generate

package: node_modules/.installed ## Pack the product, without tests and tools, as an npm package: flowtrail-VERSION.tgz
	@npm pack --loglevel=error

image: node_modules/.installed ## Build the image of deploy/docker from the package: flowtrail:VERSION (needs Docker; BUILD=options of docker build)
	@context=$$(mktemp -d) && trap 'rm -r "$$context"' EXIT && cp package-lock.json "$$context" && \
	  package=$$(npm pack --silent --pack-destination "$$context") && version=$${package#flowtrail-} && tag=flowtrail:$${version%.tgz} && \
	  docker build $(BUILD) --file deploy/docker/Dockerfile --tag "$$tag" "$$context" && echo "$$tag"

sbom: ## Print the packages of package-lock.json as CycloneDX, with licences and hashes; those of development are marked
	@# All of them: npm's --omit=dev also omits production packages that development needs, too (npm/cli#7909).
	@npm sbom --sbom-format cyclonedx --sbom-type application --package-lock-only --loglevel=error

clean: ## Remove everything that can be rebuilt; the data under .data stays
	rm -rf node_modules dist .screenshots tests/contract/proxy/node_modules tests/contract/proxy/.recorded bench/node_modules bench/.cache bench/results
	rm -rf tests/contract/fuzz/.venv* tests/connectors/.venv* tests/contract/sdks/*/generated tests/contract/sdks/*/target tests/contract/sdks/*/node_modules tests/contract/sdks/*/.venv* tests/contract/validators/*/.venv*
