package command

import (
	"slices"
	"sync"
)

// Options that many commands share.
const (
	diffOptions = `
		-p --patch; -u; -s --no-patch; -U --unified=<number>; -W --[no-]function-context; --inter-hunk-context=<number>
		--raw; --patch-with-raw; --patch-with-stat; --stat[=<text>]; --stat-width=<number>; --stat-name-width=<number>; --stat-count=<number>
		--compact-summary; --numstat; --shortstat; --summary; --dirstat[=<text>]; --cumulative; -X[=<text>]
		--name-only; --name-status; -z; --full-index; --binary; --abbrev[=<number>]; --no-abbrev
		--indent-heuristic; --no-indent-heuristic; --minimal; --patience; --histogram; --anchored=<text>
		--diff-algorithm=default|myers|minimal|patience|histogram
		--color[=always|never|auto]; --no-color; --color-moved[=<text>]; --no-color-moved; --color-moved-ws=<text>; --no-color-moved-ws
		--word-diff[=color|plain|porcelain|none]; --word-diff-regex=<text>; --color-words[=<text>]
		--no-renames; --[no-]rename-empty; --check; --ws-error-highlight=<text>
		-B --break-rewrites[=<text>]; -M --find-renames[=<number>]; -C --find-copies[=<number>]; --find-copies-harder; -D --irreversible-delete; -l=<number>
		--diff-filter=<text>; -S=<text>; -G=<text>; --find-object=<rev>; --pickaxe-all; --pickaxe-regex
		-R; --[no-]relative; -a --text; --ignore-cr-at-eol; --ignore-space-at-eol
		-b --ignore-space-change; -w --ignore-all-space; --ignore-blank-lines; -I --ignore-matching-lines=<text>
		--exit-code; --quiet; --no-ext-diff; --no-textconv; --src-prefix=<text>; --dst-prefix=<text>; --no-prefix; --default-prefix
		--line-prefix=<text>; --ita-invisible-in-index; --ignore-submodules[=all]
`

	chooseOptions = `
		-n --max-count=<number>; --skip=<number>; --since=<text>; --after=<text>; --until=<text>; --before=<text>; --since-as-filter=<text>
		--author=<text>; --committer=<text>; --grep-reflog=<text>; --grep=<text>; --all-match; --invert-grep; -i --regexp-ignore-case
		--basic-regexp; -E --extended-regexp; -F --fixed-strings; -P --perl-regexp; --remove-empty
		--merges; --no-merges; --min-parents=<number>; --max-parents=<number>; --no-min-parents; --no-max-parents
		--first-parent; --exclude-first-parent-only; --not; --all; --branches[=<text>]; --tags[=<text>]; --remotes[=<text>]; --glob=<text>; --exclude=<text>
		--ignore-missing; --cherry-mark; --cherry-pick; --left-only; --right-only; --cherry; -g --walk-reflogs; --merge; --boundary
		--simplify-by-decoration; --show-pulls; --full-history; --dense; --sparse; --simplify-merges; --ancestry-path[=<rev>]
		--date-order; --author-date-order; --topo-order; --reverse; --no-walk[=sorted|unsorted]; --do-walk
`

	prettyOptions = `
		--pretty[=<text>]; --format=<text>; --abbrev-commit; --no-abbrev-commit; --oneline; --encoding=<text>; --[no-]expand-tabs
		--notes; --no-notes; --no-show-signature; --relative-date; --date=<text>; --parents; --children; --left-right; --graph; --no-graph; --show-linear-break[=<text>]
		-c; --cc; --combined-all-paths; -m; --diff-merges=off|none|first-parent|1|separate|m|combined|c|dense-combined|cc|remerge|r|on; --no-diff-merges; -t; --remerge-diff
`

	logOptions = diffOptions + chooseOptions + prettyOptions + `
		--follow; --no-decorate; --decorate[=short|full|auto|no]; --decorate-refs=<text>; --decorate-refs-exclude=<text>; --[no-]source
		--[no-]mailmap; --[no-]use-mailmap; --full-diff; --log-size; -L=<text>; --clear-decorations; --root; -r`

	messageOptions = `-m --message=<text>; -F --file=<input>; --cleanup=strip|whitespace|verbatim|scissors|default
`

	mergeOptions = `
		--[no-]stat; -n; --summary; --[no-]log[=<number>]; --[no-]squash; --commit; --no-commit; --edit; -e; --no-edit; --ff; --no-ff; --ff-only
		-s --strategy=ort|recursive|ours|subtree; -X --strategy-option=ours|theirs|patience|ignore-space-change|ignore-all-space|ignore-space-at-eol|ignore-cr-at-eol|renormalize|no-renormalize|find-renames|no-renames|diff-algorithm=histogram|diff-algorithm=patience|diff-algorithm=minimal|diff-algorithm=myers
		-v --verbose; -q --quiet; --[no-]autostash; --[no-]signoff; --allow-unrelated-histories; --no-progress; --no-gpg-sign; --no-verify-signatures; --no-rerere-autoupdate
`

	sequenceOptions = `--continue; --skip; --abort; --quit
`

	listOptions = `
		--sort=<text>; --format=<text>; --contains=<rev>; --no-contains=<rev>; --merged[=<rev>]; --no-merged[=<rev>]; --points-at=<rev>
		-i --ignore-case; --color[=always|never|auto]; --no-color; --[no-]column[=<text>]
`
)

// table lists the commands.
type table []*verb

func (t table) find(name string) *verb {
	if i := slices.IndexFunc(t, func(v *verb) bool { return v.name == name }); i >= 0 {
		return t[i]
	}
	return nil
}

// verbs holds the commands that a sandbox may call. What a command does with names of
// branches is judged by its judge. They are read when they are first needed, which most
// commands of Cove never do.
var verbs = sync.OnceValue(func() table {
	t := table{
		// Looking.
		{name: "status", effect: Reads, judge: files, options: `
			-s --short; -b --[no-]branch; --[no-]show-stash; --porcelain[=v1|v2|1|2]; --long; -v --verbose; -u --untracked-files[=no|normal|all]
			--ignored[=traditional|no|matching]; -z; --column[=<text>]; --no-column; --[no-]ahead-behind; --[no-]renames; --find-renames[=<number>]; --ignore-submodules[=all]`},
		{name: "diff", effect: Reads, judge: history, pager: true, options: diffOptions + `
			--cached; --staged; --merge-base; -1 --base; -2 --ours; -3 --theirs; -0; -c; --cc; --combined-all-paths`},
		{name: "diff-tree", effect: Reads, judge: history, options: diffOptions + prettyOptions + `-r; -t; --root; --merge-base; --no-commit-id; -s; -v`},
		{name: "diff-index", effect: Reads, judge: history, options: diffOptions + `--cached; -m; --merge-base`},
		{name: "diff-files", effect: Reads, judge: files, options: diffOptions + `-1 --base; -2 --ours; -3 --theirs; -0; -c; --cc; -q`},
		{name: "log", effect: Reads, judge: history, pager: true, count: true, options: logOptions},
		{name: "whatchanged", effect: Reads, judge: history, pager: true, count: true, options: logOptions},
		{name: "show", effect: Reads, judge: history, pager: true, count: true, options: logOptions},
		{name: "shortlog", effect: Reads, judge: history, pager: true, count: true, options: chooseOptions + `
			-n --numbered; -s --summary; -e --email; --format=<text>; --date=<text>; --group=author|committer; -c --committer-group; -w[=<text>]`},
		{name: "rev-list", effect: Reads, judge: history, count: true, options: chooseOptions + prettyOptions + `
			--count; --quiet; --objects; --no-object-names; --object-names; --header; --timestamp; --abbrev[=<number>]; --no-commit-header; --in-commit-order; --disk-usage[=human]`},
		{name: "blame", effect: Reads, judge: blame, pager: true, options: blameOptions},
		{name: "annotate", effect: Reads, judge: blame, pager: true, options: blameOptions},
		{name: "grep", effect: Reads, judge: grep, pager: true, options: `
			--cached; --untracked; --no-exclude-standard; --exclude-standard; -v --invert-match; -i --ignore-case; -w --word-regexp; -a --text; -I
			-r --recursive; --no-recursive; --max-depth=<number>; -E --extended-regexp; -G --basic-regexp; -F --fixed-strings; -P --perl-regexp
			-n --line-number; --no-line-number; --column; -h; -H; --full-name; -l --files-with-matches; --name-only; -L --files-without-match; -z --null; -o --only-matching
			-c --count; --color[=always|never|auto]; --no-color; --break; --heading; -C --context=<number>; -B --before-context=<number>; -A --after-context=<number>
			--threads=<number>; -p --show-function; -W --function-context; -e=<text>; --and; --or; --not; -q --quiet; --all-match; -m --max-count=<number>; --no-textconv`},
		{name: "ls-files", effect: Reads, judge: files, options: `
			-z; -t; -v; -f; -c --cached; -d --deleted; -m --modified; -o --others; -i --ignored; -s --stage; -k --killed; --directory; --[no-]empty-directory; --eol; --deduplicate
			-u --unmerged; --resolve-undo; -x --exclude=<text>; --exclude-standard; --full-name; --error-unmatch; --with-tree=<rev>; --abbrev[=<number>]; --debug; --sparse; --format=<text>`},
		{name: "ls-tree", effect: Reads, judge: tree, options: `
			-d; -r; -t; -z; -l --long; --name-only; --name-status; --object-only; --full-name; --full-tree; --abbrev[=<number>]; --format=<text>`},
		{name: "cat-file", effect: Reads, judge: object, options: `-t; -s; -e; -p; --use-mailmap; --no-use-mailmap`},
		{name: "rev-parse", effect: Reads, judge: question, query: true, options: `
			--verify; -q --quiet; --short[=<number>]; --abbrev-ref[=strict|loose]; --symbolic; --symbolic-full-name; --not; --revs-only; --no-revs; --flags; --no-flags
			--all; --branches[=<text>]; --tags[=<text>]; --remotes[=<text>]; --glob=<text>; --exclude=<text>
			--show-toplevel; --show-prefix; --show-cdup; --git-dir; --absolute-git-dir; --git-common-dir; --is-inside-git-dir; --is-inside-work-tree; --is-bare-repository; --is-shallow-repository
			--show-superproject-working-tree; --show-object-format[=storage|input|output]; --since=<text>; --until=<text>; --path-format=absolute|relative`},
		{name: "merge-base", effect: Reads, judge: revisionsOnly, options: `-a --all; --octopus; --independent; --is-ancestor; --fork-point`},
		{name: "name-rev", effect: Reads, judge: revisionsOnly, options: `--name-only; --tags; --refs=<text>; --exclude=<text>; --no-undefined; --undefined; --always; --all`},
		{name: "describe", effect: Reads, judge: revisionsOnly, options: `
			--dirty[=<text>]; --broken[=<text>]; --all; --tags; --contains; --abbrev[=<number>]; --candidates=<number>; --exact-match; --debug; --long
			--match=<text>; --exclude=<text>; --always; --first-parent`},
		{name: "range-diff", effect: Reads, judge: history, pager: true, options: diffOptions + `--creation-factor=<number>; --no-dual-color; --dual-color; --left-only; --right-only`},
		{name: "cherry", effect: Reads, judge: revisionsOnly, options: `-v --verbose; --abbrev[=<number>]`},
		{name: "for-each-ref", effect: Reads, judge: patterns, options: listOptions + `--count=<number>; -s --shell; -p --perl; --python; --tcl; --omit-empty`},
		{name: "show-ref", effect: Reads, judge: patterns, options: `--head; -d --dereference; -s --hash[=<number>]; --verify; --abbrev[=<number>]; -q --quiet; --tags; --heads; --branches`},
		{name: "show-branch", effect: Reads, judge: history, pager: true, options: `-a --all; -r --remotes; --current; --topo-order; --date-order; --sparse; --more[=<number>]; --list; --merge-base; --independent; --no-name; --sha1-name; --topics; --color[=always|never|auto]; --no-color`},
		{name: "symbolic-ref", effect: Reads, judge: symbolic, options: `-q --quiet; --short; --recurse; --no-recurse`},
		{name: "reflog", effect: Reads, judge: reflog, pager: true, count: true, options: logOptions},
		{name: "reflog show", effect: Reads, judge: reflog, pager: true, count: true, options: logOptions},
		{name: "check-ignore", effect: Reads, judge: files, options: `-q --quiet; -v --verbose; -n --non-matching; -z`},
		{name: "check-attr", effect: Reads, judge: attributes, options: `-a --all; --cached; -z`},
		{name: "check-ref-format", effect: Reads, judge: words, options: `--branch; --[no-]allow-onelevel; --normalize; --refspec-pattern`},
		{name: "count-objects", effect: Reads, judge: nothing, options: `-v --verbose; -H --human-readable`},
		{name: "config", effect: Reads, judge: setting, options: `--get; --get-all; -z --null; --bool; --int; --bool-or-int; --type=bool|int|bool-or-int; --default=<text>; --local; --global; --system`},
		{name: "remote", effect: Reads, judge: nothing, options: `-v --verbose`},
		{name: "remote get-url", effect: Reads, judge: remote, options: `--push; --all`},
		{name: "tag", effect: Reads, judge: tags, pager: true, options: listOptions + `-l --list; -n[=<number>]`},
		{name: "version", effect: Reads, judge: nothing, options: `--build-options`},

		// Changing files and the index.
		{name: "add", effect: Writes, judge: files, options: `
			-n --dry-run; -v --verbose; -f --force; -u --update; --[no-]renormalize; -N --intent-to-add; -A --all; --no-all; --ignore-removal; --no-ignore-removal; --refresh
			--ignore-errors; --ignore-missing; --sparse; --chmod=+x|-x`},
		{name: "rm", effect: Writes, judge: files, options: `-n --dry-run; -q --quiet; --cached; -f --force; -r; --ignore-unmatch; --sparse`},
		{name: "mv", effect: Writes, judge: names, options: `-v --verbose; -n --dry-run; -f --force; -k; --sparse`},
		{name: "restore", effect: Writes, judge: files, options: `
			-s --source=<rev>; -S --[no-]staged; -W --[no-]worktree; --ignore-unmerged; --[no-]overlay; -q --quiet; --no-progress; -m --merge; --conflict=merge|diff3|zdiff3; --ours; -2; --theirs; -3; --ignore-skip-worktree-bits`},
		{name: "clean", effect: Writes, judge: files, options: `-q --quiet; -n --dry-run; -f --force; -d; -e --exclude=<text>; -x; -X`},
		{name: "apply", effect: Writes, judge: patch, options: `
			--stat; --numstat; --summary; --check; --index; -N --intent-to-add; --cached; -3 --3way; -R --reverse; --reject; -z; -p=<number>; -C=<number>
			--unidiff-zero; --apply; --exclude=<text>; --include=<text>; --whitespace=nowarn|warn|fix|error|error-all|strip; --ignore-space-change; --ignore-whitespace
			--recount; --inaccurate-eof; -v --verbose; -q --quiet; --allow-empty; --allow-overlap; --allow-binary-replacement; --binary`},
		{name: "update-index", effect: Writes, judge: files, options: `--refresh; --really-refresh; -q; --chmod=+x|-x; --[no-]assume-unchanged; --[no-]skip-worktree; --add; --remove; --force-remove; --verbose; --ignore-missing; --unmerged`},
		{name: "sparse-checkout list", effect: Reads, judge: nothing},

		// Changing the branch.
		{name: "commit", effect: Writes, judge: files, editor: []string{"--message", "--file", "--reuse-message", "--no-edit", "--dry-run", "--short", "--porcelain", "--long"}, options: messageOptions + `
			-a --all; -C --reuse-message=<rev>; -c --reedit-message=<rev>; --fixup=<rev>; --squash=<rev>; --reset-author; --short; --branch; --porcelain; --long; -z
			--author=<text>; --date=<text>; --trailer=<text>; -s --[no-]signoff; -n --[no-]verify; --allow-empty; --allow-empty-message; -e --edit; --no-edit; --amend; --no-post-rewrite
			-i --include; -o --only; -u --untracked-files[=no|normal|all]; -v --verbose; -q --quiet; --dry-run; --status; --no-status; --no-gpg-sign`},
		{name: "branch", effect: Reads, judge: branch, pager: true, options: listOptions + `
			-l --list; -a --all; -r --remotes; -v --verbose; -q --quiet; --show-current; --abbrev[=<number>]; --no-abbrev; --omit-empty`},
		{name: "switch", effect: Writes, judge: switchTo, options: switchOptions + `-d --detach; -c --create=<text>; -C --force-create=<text>; --discard-changes; --no-guess; --guess`},
		{name: "checkout", effect: Writes, judge: checkout, options: switchOptions + `
			-d --detach; -b=<text>; -B=<text>; -2 --ours; -3 --theirs; --no-guess; --guess; --[no-]overlay; --ignore-skip-worktree-bits; -l`},
		{name: "reset", effect: Writes, judge: history, options: `-q --quiet; --no-quiet; --refresh; --no-refresh; --mixed; --soft; --hard; --merge; --keep; -N --intent-to-add`},
		{name: "merge", effect: Writes, judge: merge, editor: []string{"--message", "--file", "--no-edit", "--squash", "--no-commit", "--ff-only", "--abort", "--quit"}, options: mergeOptions + messageOptions + `--into-name=<text>; --overwrite-ignore; --no-overwrite-ignore; --abort; --continue; --quit`},
		{name: "rebase", effect: Writes, judge: rebase, editor: []string{"--abort", "--quit"}, options: sequenceOptions + `
			--onto=<rev>; --keep-base; --[no-]ff; --[no-]fork-point; -q --quiet; -v --verbose; -n --no-stat; --stat; --signoff; --committer-date-is-author-date; --reset-author-date; --ignore-date
			-C=<number>; --ignore-whitespace; --whitespace=nowarn|warn|fix|error|error-all; -f --force-rebase; --no-ff; -m --merge; --no-keep-empty; --keep-empty; --empty=drop|keep
			--[no-]autosquash; --[no-]autostash; --rebase-merges[=no-rebase-cousins|rebase-cousins]; --no-rebase-merges; --reapply-cherry-picks; --no-reapply-cherry-picks; --root; --show-current-patch
			-s --strategy=ort|recursive|ours|subtree; -X --strategy-option=ours|theirs|patience|ignore-space-change|ignore-all-space|ignore-space-at-eol|renormalize|no-renormalize|find-renames|no-renames; --no-gpg-sign; --no-verify; --verify; --no-update-refs; --apply; --allow-empty-message; --no-rerere-autoupdate`},
		{name: "cherry-pick", effect: Writes, judge: pick, editor: []string{"--no-commit", "--abort", "--quit", "--skip"}, options: pickOptions + `-x; --ff; --allow-empty; --allow-empty-message; --keep-redundant-commits`},
		{name: "revert", effect: Writes, judge: pick, editor: []string{"--no-commit", "--no-edit", "--abort", "--quit", "--skip"}, options: pickOptions + `--reference`},
		{name: "stash", effect: Writes, judge: stashPush, options: stashOptions},
		{name: "stash push", effect: Writes, judge: stashPush, options: stashOptions},
		{name: "stash list", effect: Reads, judge: nothing, pager: true, count: true, options: logOptions},
		{name: "stash show", effect: Reads, judge: stashed, pager: true, options: diffOptions + `--include-untracked; --only-untracked; --no-include-untracked`},
		{name: "stash pop", effect: Writes, judge: stashed, options: `--index; -q --quiet`},
		{name: "stash apply", effect: Writes, judge: stashed, options: `--index; -q --quiet`},
		{name: "stash drop", effect: Writes, judge: stashed, options: `-q --quiet`},
		{name: "stash clear", effect: Writes, judge: nothing},

		// Going to the remote.
		{name: "fetch", effect: Remote, judge: fetch, options: `
			-v --verbose; -q --quiet; -p --[no-]prune; -t --[no-]tags; -n; --depth=<number>; --deepen=<number>; --shallow-since=<text>; --unshallow; --dry-run; -f --force; -k --keep; --[no-]write-fetch-head
			--no-auto-maintenance; --no-auto-gc; --no-recurse-submodules; --atomic; -4 --ipv4; -6 --ipv6; --[no-]progress; --porcelain; --prune-tags; --all; --filter=blob:none|tree:0; --refetch; --no-filter; --[no-]show-forced-updates; -a --append`},
		{name: "pull", effect: Remote, judge: pull, editor: []string{"--no-edit", "--rebase", "--ff-only", "--squash", "--no-commit"}, options: mergeOptions + `
			-r --rebase[=true|false|merges]; --no-rebase; -t --[no-]tags; -p --prune; --no-prune; --depth=<number>; --unshallow; --dry-run; --cleanup=strip|whitespace|verbatim|scissors|default; -f --force; --progress; --no-recurse-submodules; --all`},
		{name: "push", effect: Remote, judge: push, options: `
			-v --verbose; -q --quiet; -n --dry-run; --porcelain; -u --set-upstream; --progress; --no-progress; --atomic; --no-atomic; --thin; --no-thin; --no-verify; --verify; --no-signed; 
			-f --force; --force-with-lease[=<text>]; --force-if-includes; --no-force-with-lease; --no-force-if-includes; --no-recurse-submodules; -4 --ipv4; -6 --ipv6; --no-follow-tags`},
		{name: "ls-remote", effect: Remote, judge: lsRemote, options: `-h --heads; --branches; -t --tags; --refs; -q --quiet; --exit-code; --symref; --sort=<text>; --get-url`},
	}
	for _, v := range t {
		v.known = compile(v.options)
	}
	return t
})

const (
	blameOptions = `
		-b; -s; -l; -t; -f --show-name; -n --show-number; -p --porcelain; --line-porcelain; -c; -e --show-email; -w; --root; --show-stats; --score-debug; --incremental
		-M[=<number>]; -C[=<number>]; -L=<text>; --abbrev=<number>; --date=<text>; --since=<text>; --first-parent; --reverse; --color-lines; --color-by-age
		--minimal; --diff-algorithm=myers|minimal|patience|histogram; --ignore-rev=<rev>; --progress; --no-progress; --encoding=<text>
`
	switchOptions = `-q --quiet; --progress; --no-progress; -f --force; -m --merge; --conflict=merge|diff3|zdiff3; --[no-]overwrite-ignore; --no-recurse-submodules; --no-track
`
	stashOptions = `-S --staged; -k --[no-]keep-index; -u --include-untracked; --no-include-untracked; -a --all; -q --quiet; -m --message=<text>
`
	pickOptions = sequenceOptions + `
		-n --no-commit; -e --edit; --no-edit; -s --signoff; -m --mainline=<number>; --strategy=ort|recursive|ours|subtree
		-X --strategy-option=ours|theirs|patience|ignore-space-change|ignore-all-space|renormalize|no-renormalize; --cleanup=strip|whitespace|verbatim|scissors|default; --no-gpg-sign; --no-rerere-autoupdate
`
)
