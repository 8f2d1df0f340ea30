package command

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// table lists the commands.
type table []*verb

func (t table) find(name string) *verb {
	if i := slices.IndexFunc(t, func(v *verb) bool { return v.name == name }); i >= 0 {
		return t[i]
	}
	return nil
}

// verbs holds the commands that a sandbox may call. What a command does with names of branches is judged by its judge.
// They are read when they are first needed, which most commands of Cove never do.
var verbs = sync.OnceValue(func() table {
	options := readOptions(optionsTable)
	t := table{
		// Looking.
		{name: "status", effect: Reads, judge: files},
		{name: "diff", effect: Reads, judge: history, pager: true},
		{name: "diff-tree", effect: Reads, judge: history},
		{name: "diff-index", effect: Reads, judge: history},
		{name: "diff-files", effect: Reads, judge: files},
		{name: "log", effect: Reads, judge: history, pager: true, count: true},
		{name: "whatchanged", effect: Reads, judge: history, pager: true, count: true},
		{name: "show", effect: Reads, judge: history, pager: true, count: true},
		{name: "shortlog", effect: Reads, judge: history, pager: true, count: true},
		{name: "rev-list", effect: Reads, judge: history, count: true},
		{name: "blame", effect: Reads, judge: blame, pager: true},
		{name: "annotate", effect: Reads, judge: blame, pager: true},
		{name: "grep", effect: Reads, judge: grep, pager: true},
		{name: "ls-files", effect: Reads, judge: files},
		{name: "ls-tree", effect: Reads, judge: tree},
		{name: "cat-file", effect: Reads, judge: object},
		{name: "rev-parse", effect: Reads, judge: question, query: true},
		{name: "merge-base", effect: Reads, judge: revisionsOnly},
		{name: "name-rev", effect: Reads, judge: revisionsOnly},
		{name: "describe", effect: Reads, judge: revisionsOnly},
		{name: "range-diff", effect: Reads, judge: history, pager: true},
		{name: "cherry", effect: Reads, judge: revisionsOnly},
		{name: "for-each-ref", effect: Reads, judge: patterns},
		{name: "show-ref", effect: Reads, judge: patterns},
		{name: "show-branch", effect: Reads, judge: history, pager: true},
		{name: "symbolic-ref", effect: Reads, judge: symbolic},
		{name: "reflog", effect: Reads, judge: reflog, pager: true, count: true},
		{name: "reflog show", effect: Reads, judge: reflog, pager: true, count: true},
		{name: "archive", effect: Reads, judge: archive},
		{name: "submodule status", effect: Reads, judge: submodules},
		{name: "submodule--helper status", effect: Reads, judge: submodules},
		{name: "check-ignore", effect: Reads, judge: files},
		{name: "check-attr", effect: Reads, judge: attributes},
		{name: "check-ref-format", effect: Reads, judge: words},
		{name: "count-objects", effect: Reads, judge: nothing},
		{name: "config", effect: Reads, judge: setting},
		{name: "remote", effect: Reads, judge: nothing},
		{name: "remote get-url", effect: Reads, judge: remote},
		{name: "tag", effect: Reads, judge: tags, pager: true},
		{name: "version", effect: Reads, judge: nothing},

		// Changing files and the index.
		{name: "add", effect: Writes, judge: files},
		{name: "rm", effect: Writes, judge: files},
		{name: "mv", effect: Writes, judge: names},
		{name: "restore", effect: Writes, judge: files},
		{name: "clean", effect: Writes, judge: files},
		{name: "apply", effect: Writes, judge: patch, patch: true},
		{name: "format-patch", effect: Writes, judge: formatPatch, count: true},
		{name: "update-index", effect: Writes, judge: files},
		{name: "sparse-checkout list", effect: Reads, judge: nothing},

		// Looking for the commit that broke something. "bisect run" is done inside.
		{name: "bisect start", effect: Writes, judge: bisectStart},
		{name: "bisect good", effect: Writes, judge: revisionsOnly},
		{name: "bisect bad", effect: Writes, judge: revisionsOnly},
		{name: "bisect old", effect: Writes, judge: revisionsOnly},
		{name: "bisect new", effect: Writes, judge: revisionsOnly},
		{name: "bisect", effect: Writes, judge: bisectTerm},
		{name: "bisect skip", effect: Writes, judge: revisionsOnly},
		{name: "bisect next", effect: Writes, judge: nothing},
		{name: "bisect reset", effect: Writes, judge: bisectReset},
		{name: "bisect log", effect: Reads, judge: nothing},
		{name: "bisect terms", effect: Reads, judge: nothing},

		// Notes, which are the sandbox's own.
		{name: "notes", effect: Reads, judge: notesList},
		{name: "notes list", effect: Reads, judge: notesList},
		{name: "notes show", effect: Reads, judge: notes(0, 1)},
		{name: "notes get-ref", effect: Reads, judge: notes(0, 0)},
		{name: "notes add", effect: Writes, judge: notes(0, 1), editor: []string{"--message", "--file", "--reuse-message"}},
		{name: "notes append", effect: Writes, judge: notes(0, 1),
			editor: []string{"--message", "--file", "--reuse-message"}},
		{name: "notes edit", effect: Writes, judge: notes(0, 1), editor: []string{}},
		{name: "notes copy", effect: Writes, judge: notes(2, 2)},
		{name: "notes remove", effect: Writes, judge: notes(0, unbounded)},
		{name: "notes prune", effect: Writes, judge: notes(0, 0)},

		// Changing the branch.
		{name: "commit", effect: Writes, judge: files,
			editor: []string{"--message", "--file", "--reuse-message", "--no-edit", "--dry-run", "--short", "--porcelain",
				"--long"}},
		{name: "am", effect: Writes, judge: mailbox, patch: true},
		{name: "branch", effect: Reads, judge: branch, pager: true},
		{name: "switch", effect: Writes, judge: switchTo},
		{name: "checkout", effect: Writes, judge: checkout},
		{name: "reset", effect: Writes, judge: history},
		{name: "merge", effect: Writes, judge: merge,
			editor: []string{"--message", "--file", "--no-edit", "--squash", "--no-commit", "--ff-only", "--abort", "--quit"}},
		{name: "rebase", effect: Writes, judge: rebase, editor: []string{"--abort", "--quit"}},
		{name: "cherry-pick", effect: Writes, judge: pick,
			editor: []string{"--no-commit", "--abort", "--quit", "--skip"}},
		{name: "revert", effect: Writes, judge: pick,
			editor: []string{"--no-commit", "--no-edit", "--abort", "--quit", "--skip"}},
		{name: "stash", effect: Writes, judge: stashPush},
		{name: "stash push", effect: Writes, judge: stashPush},
		{name: "stash list", effect: Reads, judge: nothing, pager: true, count: true},
		{name: "stash show", effect: Reads, judge: stashed, pager: true},
		{name: "stash pop", effect: Writes, judge: stashed},
		{name: "stash apply", effect: Writes, judge: stashed},
		{name: "stash drop", effect: Writes, judge: stashed},
		{name: "stash clear", effect: Writes, judge: nothing},

		// Going to the remote.
		{name: "fetch", effect: Remote, judge: fetch},
		{name: "pull", effect: Remote, judge: pull,
			editor: []string{"--no-edit", "--rebase", "--ff-only", "--squash", "--no-commit"}},
		{name: "push", effect: Remote, judge: push},
		{name: "ls-remote", effect: Remote, judge: lsRemote},
	}
	for _, v := range t {
		v.known = compile(options[v.name])
	}
	return t
})

//go:embed options.txt
var optionsTable string

// readOptions returns the options of each name of a table.
func readOptions(table string) map[string]string {
	all, name := map[string]string{}, ""
	for line := range strings.Lines(table) {
		switch line = strings.TrimRight(line, "\n"); {
		case line == "", line[0] == '#':
		case line[0] != '\t':
			name = line
		default:
			for item := range strings.SplitSeq(line[1:], ";") {
				if shared, ok := all[strings.TrimSpace(item)]; ok {
					item = shared
				}
				all[name] += item + "\n"
			}
		}
	}
	return all
}
