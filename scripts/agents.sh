#!/usr/bin/env bash
# Installs the agents that tests, demo and benchmark run, as "cove agents
# install" does, into .cache/agents: once, and never again while the pinned
# versions are there.
#
#   scripts/agents.sh [DIRECTORY OF cove]     default: bin
#
# Without root, or where no registry can be reached, it says so and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
cove=${1:-bin}/cove
mkdir -p .cache/agents
run=$(mktemp -d "${TMPDIR:-/tmp}/cove-agents.XXXXXX")
chmod 755 "$run" # guests pass through it
export COVE_HOME=$PWD/.cache/agents COVE_RUN_DIR=$run COVE_CONFIG= COVE_LISTEN=
trap '"$cove" server stop >/dev/null 2>&1 || true; rm -rf "$run"' EXIT
for agent in claude codex gemini opencode; do
	"$cove" agents list --json </dev/null | tr -d ' \n' | grep -q "\"name\":\"$agent\"[^}]*\"installed\":" ||
		"$cove" agents install "$agent" </dev/null
done
