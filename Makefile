# The front door: `make help` lists what there is. Everything runs on the Node that the packages bring, which npm puts
# first on the path of its scripts, so any Node from 20 on will do to begin with.

SHELL := /bin/sh
.DEFAULT_GOAL := help
RUN := npm run --silent

.PHONY: help run test check ci browser format generate clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

# Installs what the lock file says whenever it has changed since the last time.
node_modules/.installed: package.json package-lock.json
	npm ci --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

run: node_modules/.installed ## Start the service with demo data on the embedded PostgreSQL; Ctrl-C stops it
	@# npm ends with 130 after Ctrl-C although the server stopped in good order.
	@trap : INT; LOG_LEVEL=$${LOG_LEVEL:-warn} $(RUN) flowtrail -- serve --demo || [ $$? -eq 130 ]

test: node_modules/.installed ## Run all tests on the embedded PostgreSQL, or on TEST_DATABASE_URL when it is set
	@$(RUN) test

check: node_modules/.installed ## Check format, lint, types, unused code, the contract and that generated files are fresh
	@$(RUN) check

browser: node_modules/.installed ## Try every operation on /docs in headless Chromium (CHROMIUM names it; /usr/bin/chromium)
	@$(RUN) test:browser

ci: check test browser ## What CI runs on every change

format: node_modules/.installed ## Format and mend what can be mended by itself
	@$(RUN) format

generate: node_modules/.installed ## Make generated/ anew from the document and the migrations
	@$(RUN) generate

clean: ## Remove what can be made anew; the data under .data stays
	rm -rf node_modules
