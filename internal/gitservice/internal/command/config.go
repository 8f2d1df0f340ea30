package command

import (
	"slices"
	"strings"
)

// harmless are settings that a sandbox may choose: they say how something looks, who the author is, or which of git's
// own ways is taken. None names a program, a file or an address.
var harmless = map[string][]string{ // nil is any text
	"user.name": nil, "user.email": nil, "author.name": nil, "author.email": nil, "committer.name": nil,
	"committer.email":    nil,
	"user.useconfigonly": booleans,

	"core.quotepath": booleans, "core.abbrev": nil, "core.whitespace": nil, "core.commentchar": nil,
	"core.logallrefupdates": booleans,
	"color.ui":              colours, "color.branch": colours, "color.diff": colours, "color.grep": colours,
	"color.status": colours, "color.decorate": colours,
	"column.ui": nil, "column.branch": nil, "column.tag": nil, "column.status": nil,

	"diff.algorithm":   {"myers", "minimal", "patience", "histogram", "default"},
	"diff.renames":     {"true", "false", "copies", "copy"},
	"diff.renamelimit": nil, "diff.context": nil, "diff.interhunkcontext": nil, "diff.mnemonicprefix": booleans,
	"diff.noprefix": booleans,
	"diff.relative": booleans, "diff.wordregex": nil, "diff.colormoved": nil, "diff.colormovedws": nil,
	"diff.statgraphwidth":  nil,
	"diff.indentheuristic": booleans, "diff.suppressblankempty": booleans, "diff.wserrorhighlight": nil,
	"log.date": nil, "log.decorate": {"true", "false", "short", "full", "auto", "no"}, "log.abbrevcommit": booleans,
	"log.follow":   booleans,
	"log.showroot": booleans, "log.mailmap": booleans, "log.showsignature": {"false"}, "format.pretty": nil,
	"status.short": booleans, "status.branch": booleans, "status.showuntrackedfiles": {"no", "normal", "all"},
	"status.relativepaths": booleans,
	"status.showstash":     booleans, "status.aheadbehind": booleans,
	"status.renames": {"true", "false", "copies", "copy"}, "status.renamelimit": nil,
	"branch.sort": nil, "tag.sort": nil, "versionsort.suffix": nil,
	"blame.showemail": booleans, "blame.showroot": booleans, "blame.blankboundary": booleans, "blame.date": nil,
	"blame.coloring":  nil,
	"grep.linenumber": booleans, "grep.column": booleans, "grep.fullname": booleans, "grep.extendedregexp": booleans,
	"grep.patterntype": {"basic", "extended", "fixed", "perl", "default"},

	"commit.verbose": nil, "commit.status": booleans,
	"commit.cleanup": {"strip", "whitespace", "verbatim", "scissors", "default"}, "commit.gpgsign": {"false"},
	"tag.gpgsign": {"false"},
	"merge.ff":    {"true", "false", "only"}, "merge.conflictstyle": {"merge", "diff3", "zdiff3"}, "merge.stat": booleans,
	"merge.log":     nil,
	"merge.renames": booleans, "merge.renamelimit": nil, "merge.verbosity": nil, "merge.autostash": booleans,
	"pull.rebase": booleans, "pull.ff": {"true", "false", "only"}, "rebase.autostash": booleans, "rebase.stat": booleans,
	"rebase.autosquash": booleans, "rebase.forkpoint": booleans,
	"push.default": {"nothing", "current", "upstream", "simple"}, "push.autosetupremote": booleans,
	"fetch.prune": booleans, "stash.showpatch": booleans, "stash.showstat": booleans,
	"stash.showincludeuntracked": booleans,
	"apply.whitespace":           {"nowarn", "warn", "fix", "error", "error-all"}, "init.defaultbranch": nil,
}

var (
	booleans = []string{"true", "false", "yes", "no", "on", "off", "1", "0"}
	colours  = []string{"true", "false", "always", "never", "auto"}
)

// readable are settings that may be read beside those, because the repository's own say nothing of others.
var readable = []string{"core.bare", "core.filemode", "core.autocrlf", "core.eol", "core.ignorecase", "core.symlinks",
	"core.repositoryformatversion",
	"core.editor", "core.pager", "commit.template", "remote.origin.url", "remote.origin.pushurl", "remote.origin.fetch",
	"remote.pushdefault", "extensions.objectformat"}

// sections lists the sections of which every setting may be read: none of Cove's own settings is in them.
var sections = []string{"user", "author", "committer", "init", "pull", "merge", "rebase", "commit", "tag", "push",
	"fetch", "log", "status", "advice", "column",
	"format", "blame", "grep", "stash", "i18n", "apply", "rerere", "color"}

// Harmless reports whether a sandbox may choose a setting for its commands.
func Harmless(key, value string) bool {
	if !printable(value) || len(value) > 4096 || strings.ContainsRune(key, '\n') {
		return false
	}
	key = strings.ToLower(key)
	if rest, ok := strings.CutPrefix(key, "color."); ok && strings.Count(rest, ".") == 1 {
		return true // color.diff.new
	}
	if rest, ok := strings.CutPrefix(key, "advice."); ok && !strings.Contains(rest, ".") {
		return slices.Contains(booleans, value)
	}
	values, ok := harmless[key]
	return ok && (values == nil || slices.Contains(values, strings.ToLower(value)))
}

// Readable reports whether a setting may be read.
func (c *Context) Readable(key string) bool {
	lower := strings.ToLower(key)
	if _, ok := harmless[lower]; ok || slices.Contains(readable, lower) || strings.HasPrefix(lower, "color.") {
		return !strings.Contains(key, "\n")
	}
	if section, name, ok := strings.Cut(lower, "."); ok && name != "" && !strings.ContainsAny(name, ".\n") &&
		slices.Contains(sections, section) {
		return true
	}
	name, ok := strings.CutPrefix(key, "branch.")
	if !ok {
		return false
	}
	i := strings.LastIndexByte(name, '.')
	return i > 0 && c.branch(name[:i]) &&
		slices.Contains([]string{"remote", "merge", "rebase", "pushremote"}, strings.ToLower(name[i+1:]))
}
