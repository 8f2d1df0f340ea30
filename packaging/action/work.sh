#!/usr/bin/env bash
# Lets an agent work on a directory, as a step of a CI job: the action's inputs are in INPUT_*, its outputs are written to
# GITHUB_OUTPUT, and a report for people to GITHUB_STEP_SUMMARY. It ends with the exit code of "cove AGENT".
set -euo pipefail

program=$RUNNER_TEMP/cove/bin/cove
work=$(mktemp -d "$RUNNER_TEMP/cove-work.XXXXXXXXXXXXXXXX")
mark=$(basename "$work") # names this step's sandbox, and no agent knows it

# cove runs as root where that takes no password: root needs neither control groups handed over nor user namespaces for
# users. Keys in the environment of the job reach Cove, and no sandbox.
cove() {
	if [[ $(id -u) != 0 ]] && sudo -n true 2>/dev/null; then
		sudo -nE "$program" "$@"
	else
		"$program" "$@"
	fi
}

case $INPUT_AGENT in
claude | codex | gemini | opencode | worker) ;;
*)
	echo "cove: the input agent is \"$INPUT_AGENT\"; claude, codex, gemini, opencode and worker are agents" >&2
	exit 125
	;;
esac
arguments=(--label "action=$mark")
case $INPUT_APPLY in
true) arguments+=(--apply) ;;
false) ;;
*)
	echo "cove: the input apply is \"$INPUT_APPLY\"; it is true or false" >&2
	exit 125
	;;
esac
while IFS= read -r line; do
	[[ -z $line ]] || arguments+=("$line")
done <<<"$INPUT_ARGUMENTS"

# Nothing that an agent prints is a command to the runner of the job.
echo "::stop-commands::$mark"
code=0
printf '%s\n' "$INPUT_PROMPT" |
	cove "$INPUT_AGENT" --dir "$INPUT_DIRECTORY" "${arguments[@]}" - 2>&1 >"$work/answer.md" |
	tee "$work/log" || code=${PIPESTATUS[1]}
cat "$work/answer.md"
echo "::$mark::"

run=$(sed -n 's/^      transcript  cove runs show \(ru_[a-z0-9]*\)$/\1/p' "$work/log" | tail -n 1)
patch=
if [[ -n $run ]]; then
	cove runs export "$run" >"$work/record.tar"
	if tar -xOf "$work/record.tar" changes.patch >"$work/changes.patch" 2>/dev/null; then patch=$work/changes.patch; fi
	# The work is in the patch; the sandbox is not needed any more.
	left=$(cove list -q --label "action=$mark")
	[[ -z $left ]] || cove destroy --yes "$left" >/dev/null
fi
{
	echo "run=$run"
	echo "patch=$patch"
	if [[ -n $run ]]; then echo "record=$work/record.tar"; fi
	echo "answer<<$mark"
	cat "$work/answer.md"
	echo
	echo "$mark"
} >>"$GITHUB_OUTPUT"
{
	echo "### $INPUT_AGENT in a sandbox of Cove"
	echo
	cat "$work/answer.md"
	echo
	echo '```'
	if [[ -n $run ]]; then cove runs show "$run"; else tail -n 5 "$work/log"; fi
	echo '```'
} >>"$GITHUB_STEP_SUMMARY"
exit "$code"
