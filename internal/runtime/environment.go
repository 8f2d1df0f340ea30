package runtime

import (
	"maps"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Bounds of a caller's environment. The kernel's own are 128 KiB for one string and a quarter of the stack for all.
const (
	MaxEnvName  = 256       // bytes
	MaxEnvValue = 32 << 10  // bytes
	MaxEnvTotal = 256 << 10 // bytes, names and values
	MaxEnvCount = 512
)

// refusal is a rule of the environment policy. A pattern that ends in * is a prefix; patterns match in any case,
// because some programs (npm, for one) read their variables so, and nothing is gained by a look-alike.
type refusal struct {
	reason   string
	patterns []string
	except   []string
}

// refusals lists the variables that change what a loader, a shell or an interpreter does before the program's first
// line. Who sets them runs code of their own in the name of the code that was submitted and looked at.
var refusals = []refusal{
	{"the dynamic loader and the C library obey it",
		[]string{"LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "GETCONF_DIR",
			"LOCPATH", "NLSPATH", "MALLOC_TRACE", "MALLOC_CHECK_", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS",
			"RESOLV_HOST_CONF", "NIS_PATH"}, nil},
	{"Cove sets it", []string{"PATH", "HOME", "SHELL", "PWD", "OLDPWD", "COVE_*"}, nil},
	{"shells run or obey it", []string{"BASH_*", "BASHOPTS", "ENV", "SHELLOPTS", "IFS", "PS0", "PS1", "PS2", "PS3", "PS4",
		"PROMPT_COMMAND", "PROMPT_DIRTRIM",
		"CDPATH", "GLOBIGNORE", "FIGNORE", "FPATH", "ZDOTDIR", "INPUTRC", "EXECIGNORE", "HISTFILE", "HISTFILESIZE"}, nil},
	{"python obeys it", []string{"PYTHON*"}, nil},
	{"node obeys it", []string{"NODE_*", "NPM_CONFIG_*", "NPM_*", "YARN_*", "UV_THREADPOOL_SIZE", "OPENSSL_*"},
		[]string{"NODE_ENV", "NODE_NO_WARNINGS", "NODE_DISABLE_COLORS"}},
	{"perl obeys it", []string{"PERL*"}, nil},
	{"ruby obeys it", []string{"RUBY*", "GEM_*", "BUNDLE_*"}, nil},
	{"the Go toolchain obeys it", []string{"GOROOT", "GOPATH", "GOBIN", "GOFLAGS", "GOENV", "GOTOOLCHAIN", "GOTOOLDIR",
		"GOPROXY", "GOSUMDB", "GONOSUMDB",
		"GONOSUMCHECK", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOVCS", "GOAUTH", "GOMOD", "GOMODCACHE", "GOWORK", "GOCACHE",
		"GOCACHEPROG", "GOTMPDIR",
		"GOEXPERIMENT", "GOCOVERDIR", "GOTELEMETRY", "GOTELEMETRYDIR", "GOPACKAGESDRIVER", "GO111MODULE", "GO_*", "GCCGO",
		"GCCGOTOOLDIR",
		"CGO_*", "CC", "CXX", "CPP", "FC", "AR", "AS", "PKG_CONFIG*"}, nil},
	{"the Java virtual machine obeys it", []string{"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_*", "JAVA_OPTS",
		"CLASSPATH"}, nil},
	{"the .NET runtime obeys it", []string{"DOTNET_*", "COMPlus_*", "COR_*", "CORECLR_*"}, nil},
	{"its interpreter obeys it", []string{"LUA_*", "PHPRC", "PHP_INI_SCAN_DIR", "R_*", "TCLLIBPATH", "ERL_*", "ELIXIR_*",
		"JULIA_*", "AWKPATH", "AWKLIBPATH",
		"RUSTC_*", "RUSTFLAGS", "CARGO_*", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES"}, nil},
	{"libraries load code from where it says", []string{"GTK_MODULES", "GTK_PATH", "GIO_*", "QT_PLUGIN_PATH", "KRB5_*",
		"TERMINFO", "TERMINFO_DIRS", "TERMCAP"}, nil},
	{"git runs or obeys it", []string{"GIT_*"}, []string{"GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_TERMINAL_PROMPT"}},
	{"less runs it", []string{"LESSOPEN", "LESSCLOSE"}, nil},
}

// CheckEnv refuses environment variables that a caller may not set: malformed ones and too many with InvalidArgument,
// those of refusals with Forbidden. Nothing of a value is ever in the error.
func CheckEnv(env map[string]string) error {
	if len(env) > MaxEnvCount {
		return cove.Errorf(cove.InvalidArgument, "%d environment variables are too many", len(env)).
			WithHint("set at most %d", MaxEnvCount)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) { // sorted: one input, one message
		value := env[name]
		if err := checkVariable(name, value); err != nil {
			return err
		}
		total += len(name) + len(value) + 2 // '=' and NUL
	}
	if total > MaxEnvTotal {
		return cove.Errorf(cove.TooLarge, "the environment has %d bytes", total).
			WithHint("use at most %d, or pass the data as a file or on standard input", MaxEnvTotal)
	}
	return nil
}

func checkVariable(name, value string) error {
	if !validName(name) {
		return cove.Errorf(cove.InvalidArgument, "%.64q is not the name of an environment variable", name).
			WithHint("use letters, digits and _, not beginning with a digit, at most %d bytes", MaxEnvName)
	}
	if reason := refused(name); reason != "" {
		return cove.Errorf(cove.Forbidden, "the environment variable %s may not be set: %s", name, reason).
			WithHint("leave it out, or set it inside the program")
	}
	if strings.ContainsRune(value, 0) {
		return cove.Errorf(cove.InvalidArgument, "the value of the environment variable %s has a NUL byte", name).
			WithHint("remove it")
	}
	if len(value) > MaxEnvValue {
		return cove.Errorf(cove.TooLarge, "the value of the environment variable %s has %d bytes", name, len(value)).
			WithHint("use at most %d, or pass the data as a file or on standard input", MaxEnvValue)
	}
	return nil
}

// validName is POSIX's idea of a name, which leaves no room for '=', NUL or
// bash's exported functions ("BASH_FUNC_x%%").
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= MaxEnvName
}

// refused is the reason why name may not be set, or empty.
func refused(name string) string {
	for _, r := range refusals {
		if matchAny(r.patterns, name) && !matchAny(r.except, name) {
			return r.reason
		}
	}
	return ""
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
		}
		return strings.EqualFold(p, name)
	})
}

// maxArgs bounds the arguments of a program together, in bytes: well under ARG_MAX.
const maxArgs = 128 << 10

// CheckArgs refuses arguments that no program can take. Errors: InvalidArgument, TooLarge.
func CheckArgs(args []string) error {
	size := 0
	for _, a := range args {
		if size += len(a) + 1; strings.IndexByte(a, 0) >= 0 {
			return cove.Errorf(cove.InvalidArgument, "an argument has a NUL byte")
		}
	}
	if size > maxArgs {
		return cove.Errorf(cove.TooLarge, "the arguments have %d bytes, at most %d are allowed", size, maxArgs)
	}
	return nil
}
