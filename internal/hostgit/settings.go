package hostgit

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// maxThreads bounds git's threads, whatever the machine has, because its memory grows with them.
const maxThreads = 4

// settings are Cove's own configuration. As command-line settings they outweigh a repository's.
var settings = []Setting{
	// Programs that git would start.
	{"core.hooksPath", "/dev/null"},
	{"core.fsmonitor", "false"},
	{"core.alternateRefsCommand", "true"}, // run by a shell: prints nothing
	{"core.sshCommand", "false"},
	{"core.askPass", ""},
	{"core.pager", "cat"},
	{"core.editor", "false"},
	{"credential.helper", ""}, // drops configured helpers
	{"credential.interactive", "false"},
	{"gpg.program", "false"},
	{"gpg.ssh.program", "false"},
	{"gpg.x509.program", "false"},
	{"commit.gpgSign", "false"},
	{"tag.gpgSign", "false"},
	{"push.gpgSign", "false"},
	{"log.showSignature", "false"},
	{"gc.auto", "0"},
	{"gc.autoDetach", "false"},
	{"maintenance.auto", "false"},
	{"receive.autogc", "false"},

	// Paths outside the repository.
	{"core.attributesFile", "/dev/null"},
	{"core.excludesFile", "/dev/null"},
	{"safe.bareRepository", "explicit"},
	{"submodule.recurse", "false"},
	{"fetch.recurseSubmodules", "false"},
	{"push.recurseSubmodules", "no"},
	{"diff.submodule", "short"},

	// Objects from outside.
	{"transfer.fsckObjects", "true"},
	{"fetch.fsckObjects", "true"},
	{"receive.fsckObjects", "true"},
	{"transfer.credentialsInUrl", "die"},
	{"transfer.bundleURI", "false"},
	{"fetch.writeCommitGraph", "false"},
	{"core.protectHFS", "true"},
	{"core.protectNTFS", "true"},
	{"core.untrackedCache", "false"},

	// Memory: packs are mapped in windows, files above the threshold are neither held nor compared, and every thread
	// has its share.
	{"pack.threads", strconv.Itoa(min(maxThreads, runtime.NumCPU()))},
	{"index.threads", "2"},
	{"core.preloadIndex", "false"},
	{"core.packedGitWindowSize", "64m"},
	{"core.packedGitLimit", "1g"},
	{"core.bigFileThreshold", "64m"},
	{"pack.windowMemory", "256m"},

	{"http.sslVerify", "true"},
	{"http.followRedirects", "initial"},
	{"http.proxy", ""},
	{"http.saveCookies", "false"},
	{"http.emptyAuth", "false"},
	{"http.lowSpeedLimit", "100"}, // bytes a second
	{"http.lowSpeedTime", "60"},   // seconds

	{"advice.detachedHead", "false"},
	{"init.defaultBranch", "main"},
	{"color.ui", "false"},
}

// harmless are findings of fsck about people and dates. Old commits have them for ever, and their values are not used.
var harmless = []string{"badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "missingEmail",
	"missingNameBeforeEmail",
	"missingSpaceBeforeDate", "missingSpaceBeforeEmail", "multipleAuthors", "zeroPaddedDate", "zeroPaddedFilemode"}

// Harmless returns what index-pack need not refuse, for its flag --strict.
func Harmless() string { return strings.Join(harmless, "=ignore,") + "=ignore" }

// Environment returns the whole environment of git and its children, with a directory of programs: for a git that runs
// in a sandbox, so that it has the same configuration.
func (r Run) Environment(programs string) []string { return r.environment(programs) }

// environment returns the whole environment of git and its children.
func (r Run) environment(programs string) []string {
	env := []string{
		"PATH=" + strings.Join([]string{programs, "/usr/local/bin", "/usr/bin", "/bin"}, string(os.PathListSeparator)),
		"HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent", "LC_ALL=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES=/", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_PAGER=cat", "GIT_EDITOR=false",
		"GIT_SEQUENCE_EDITOR=false",
		"GIT_SSH_COMMAND=false", "GIT_PROXY_COMMAND=false", "GIT_ADVICE=0", "GIT_MERGE_AUTOEDIT=no",
		// It outweighs every protocol.allow.
		"GIT_ALLOW_PROTOCOL=" + strings.Join(r.Transport, ":"),
		"GIT_GRAFT_FILE=/dev/null", "MALLOC_ARENA_MAX=2",
	}
	if r.Index != "" {
		env = append(env, "GIT_INDEX_FILE="+r.Index)
	}
	env = append(append(env, system()...), r.Env...)
	all := slices.Clone(settings)
	for _, finding := range harmless {
		all = append(all, Setting{"fetch.fsck." + finding, "ignore"})
	}
	all = append(all, r.Settings...)
	// Settings go into the environment, because every account on the machine can read arguments.
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(all)))
	for i, s := range all {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s.Key, "GIT_CONFIG_VALUE_"+n+"="+s.Value)
	}
	return env
}

// comparing are the commands that show differences.
var comparing = []string{"diff", "diff-tree", "diff-index", "diff-files", "log", "show", "format-patch"}

// argv returns the arguments of a run. Errors: InvalidArgument.
func (r Run) argv() ([]string, error) {
	args := []string{"--no-pager", "--literal-pathspecs"}
	if r.Dir != "" {
		args = append(args, "--git-dir="+r.Dir)
	}
	if r.WorkTree != "" {
		args = append(args, "--work-tree="+r.WorkTree)
	}
	args = append(args, r.Command...)
	if slices.Contains(comparing, r.Command[0]) {
		args = append(args, "--no-ext-diff", "--no-textconv")
	}
	for _, f := range r.Flags {
		if !strings.HasPrefix(f, "-") || f == "--" || f == "--end-of-options" {
			return nil, cove.Errorf(cove.Internal, "%q is no flag of git", f)
		}
		args = append(args, f)
	}
	if len(r.Args) > 0 {
		args = append(args, "--end-of-options")
	}
	for _, a := range r.Args {
		if strings.HasPrefix(a, "-") || strings.ContainsAny(a, "\x00\n") {
			return nil, cove.Errorf(cove.InvalidArgument, "%.200q is nothing that git may be asked for", a)
		}
		args = append(args, a)
	}
	if len(r.Paths) > 0 {
		args = append(args, "--")
	}
	for _, p := range r.Paths {
		if strings.HasPrefix(p, "-") || strings.IndexByte(p, 0) >= 0 {
			return nil, cove.Errorf(cove.InvalidArgument, "%.200q is no path that git may be asked for", p)
		}
		args = append(args, p)
	}
	return args, nil
}
