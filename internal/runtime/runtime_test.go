package runtime

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{"python": "python", "py": "python", "Python3": "python", "JS": "node",
		"javascript": "node",
		"golang":     "go", "bash": "bash", "shell": "sh", "rb": "ruby", "pl": "perl"} {
		if r, err := Lookup(name); err != nil || r.Name != want {
			t.Errorf("%q is %q (%v), want %q", name, r.Name, err, want)
		}
	}
	for _, name := range []string{"", "cobol", "python ", "../python", "py\x00", strings.Repeat("x", 1<<20)} {
		_, err := Lookup(name)
		if cove.ErrorCode(err) != cove.InvalidArgument ||
			!strings.Contains(err.Error(), "python, node, bash, sh, ruby, perl, go") {
			t.Errorf("%.20q: %.200v", name, err)
		}
		if len(err.Error()) > 500 {
			t.Errorf("%.20q: the message has %d bytes", name, len(err.Error()))
		}
	}
}

func TestDeclarations(t *testing.T) {
	taken := map[string]string{}
	for _, r := range All() {
		for _, name := range append([]string{r.Name}, r.Aliases...) {
			if other := taken[name]; other != "" || name != strings.ToLower(name) {
				t.Errorf("%s: the name %q is not lower case, or %s's too", r.Name, name, other)
			}
			taken[name] = r.Name
		}
		if r.File == "" || strings.Contains(r.File, "/") || len(r.Command) == 0 || len(r.Probe) == 0 || r.Package == "" ||
			r.Image == "" {
			t.Errorf("%s: incomplete: %+v", r.Name, r)
		}
		if limits, err := r.Resolve(cove.Limits{}); err != nil {
			t.Errorf("%s: its defaults are refused: %v", r.Name, err)
		} else if _, err := r.Resolve(limits); err != nil {
			t.Errorf("%s: what Resolve gives, it refuses: %v", r.Name, err)
		}
		for _, image := range []string{"", "host", "alpine"} {
			err := r.Missing(image)
			if cove.ErrorCode(err) != cove.RuntimeMissing || !strings.Contains(err.Error(), r.Image) {
				t.Errorf("%s missing in %q: %v", r.Name, image, err)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	got, err := python.Resolve(cove.Limits{Memory: 64 << 20, Timeout: time.Second})
	want := Defaults
	want.Memory, want.Timeout = 64<<20, time.Second
	if err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if got, err := golang.Resolve(cove.Limits{}); err != nil || got.Memory != 1<<30 ||
		got.OpenFiles != Defaults.OpenFiles {
		t.Errorf("go's own limits: %+v (%v)", got, err)
	}
}

func TestResolveRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		want cove.Limits
		says []string
	}{
		{"negative memory", cove.Limits{Memory: -1}, []string{"memory of -1 bytes", "16 MiB to 16 GiB"}},
		{"little memory", cove.Limits{Memory: 15 << 20}, []string{"memory of 15 MiB", "16 MiB to 16 GiB"}},
		{"much memory", cove.Limits{Memory: math.MaxInt64}, []string{"memory", "16 MiB to 16 GiB"}},
		{"least memory", cove.Limits{Memory: math.MinInt64}, []string{"memory"}},
		{"negative cpus", cove.Limits{CPUs: -0.5}, []string{"cpus of -0.5", "0.01 to 64"}},
		{"NaN cpus", cove.Limits{CPUs: math.NaN()}, []string{"cpus of NaN"}},
		{"infinite cpus", cove.Limits{CPUs: math.Inf(1)}, []string{"cpus of +Inf"}},
		{"tiny cpus", cove.Limits{CPUs: 1e-300}, []string{"cpus of 1e-300"}},
		{"negative pids", cove.Limits{PIDs: -1}, []string{"pids of -1", "1 to 8192"}},
		{"many pids", cove.Limits{PIDs: 1 << 40}, []string{"pids"}},
		{"negative disk", cove.Limits{Disk: -1}, []string{"disk", "1 MiB to 16 GiB"}},
		{"negative inodes", cove.Limits{Inodes: -1}, []string{"inodes"}},
		{"few open files", cove.Limits{OpenFiles: 3}, []string{"open files of 3", "64 to 1048576"}},
		{"negative stdout", cove.Limits{Stdout: -1}, []string{"stdout"}},
		{"much stderr", cove.Limits{Stderr: 1 << 40}, []string{"stderr", "1 KiB to 16 MiB"}},
		{"negative timeout", cove.Limits{Timeout: -time.Second}, []string{"timeout of -1 s", "0.001 s to 60 s"}},
		{"long timeout", cove.Limits{Timeout: MaxTimeout + 1}, []string{"timeout", "60 s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := python.Resolve(c.want)
			if cove.ErrorCode(err) != cove.InvalidArgument || got != (cove.Limits{}) {
				t.Fatalf("got %+v, %v", got, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

func TestBounds(t *testing.T) {
	b := Bounds{Defaults: cove.Limits{Memory: 128 << 20}, Max: cove.Limits{Memory: 512 << 20, Timeout: 5 * time.Second}}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Resolve(python, cove.Limits{}); err != nil || got.Memory != 128<<20 || got.Timeout != 5*time.Second {
		t.Errorf("configured defaults: %+v (%v)", got, err)
	}
	// A runtime's own wish is reduced; a caller's is refused.
	if got, err := b.Resolve(golang, cove.Limits{}); err != nil || got.Memory != 512<<20 {
		t.Errorf("go under a smaller maximum: %+v (%v)", got, err)
	}
	if _, err := b.Resolve(python, cove.Limits{Memory: 1 << 30}); err == nil ||
		!strings.Contains(err.Error(), "16 MiB to 512 MiB") {
		t.Errorf("over the configured maximum: %v", err)
	}
	// The machine's owner may take longer, never less long than others.
	long := cove.Limits{Timeout: 2 * time.Hour}
	for _, c := range []struct {
		b    Bounds
		most time.Duration
	}{
		{Bounds{}, OwnerTimeout}, {Bounds{OwnerTimeout: time.Hour}, time.Hour},
		{Bounds{OwnerTimeout: time.Hour, Max: long}, 2 * time.Hour},
	} {
		if _, err := c.b.ForOwner().Resolve(python, cove.Limits{Timeout: c.most}); err != nil {
			t.Errorf("the owner, for %v: %v", c.most, err)
		}
		_, err := c.b.ForOwner().Resolve(python, cove.Limits{Timeout: c.most + 1})
		if cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("the owner, for longer than %v: %v", c.most, err)
		}
	}
	user := Bounds{}.ForUser()
	for name, c := range map[string]struct {
		b           Bounds
		asked, want int64 // 0: refused
	}{
		"of a user, by default":    {user, 0, 512},
		"of another, beyond":       {user, 513, 0},
		"of the owner, as asked":   {user.ForOwner(), 4096, 4096},
		"of the owner, by default": {user.ForOwner(), 0, 512},
		"configured":               {Bounds{Defaults: cove.Limits{OpenFiles: 2000}}.ForUser(), 2000, 2000},
		"more is configured":       {Bounds{Max: cove.Limits{OpenFiles: 2000}}.ForUser(), 2000, 2000},
	} {
		got, err := c.b.Resolve(python, cove.Limits{OpenFiles: c.asked})
		if got.OpenFiles != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("open files %s: %d, %v", name, got.OpenFiles, err)
		}
	}
	if err := (Bounds{Max: long}).Check(); err != nil {
		t.Errorf("a configured maximum of hours: %v", err)
	}
	for name, bad := range map[string]Bounds{
		"negative":                   {Max: cove.Limits{Memory: -1}},
		"below the minimum":          {Defaults: cove.Limits{Memory: 1}},
		"default over the maximum":   {Defaults: cove.Limits{PIDs: 100}, Max: cove.Limits{PIDs: 10}},
		"maximum over Cove's own":    {Max: cove.Limits{Timeout: LongestTimeout + 1}},
		"default over Cove's own":    {Defaults: cove.Limits{OpenFiles: 1 << 30}},
		"default of no number":       {Defaults: cove.Limits{CPUs: math.NaN()}},
		"maximum of infinitely many": {Max: cove.Limits{CPUs: math.Inf(1)}},
	} {
		if err := bad.Check(); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckEnv(t *testing.T) {
	for _, name := range []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "ld_preload", "GCONV_PATH", "GLIBC_TUNABLES", "PATH", "Path", "HOME",
		"NODE_OPTIONS", "node_options",
		"NODE_PATH", "npm_config_script_shell", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PythonPath",
		"BASH_ENV", "ENV", "PERL5LIB",
		"PERL5OPT", "PERL5DB", "PERLLIB", "RUBYOPT", "RUBYLIB", "GEM_PATH", "IFS", "SHELLOPTS", "BASHOPTS", "PS4",
		"PROMPT_COMMAND", "GOROOT", "GOFLAGS",
		"GOTOOLCHAIN", "GOPROXY", "CGO_CFLAGS", "CC", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "GIT_SSH_COMMAND",
		"GIT_CONFIG_COUNT",
		"GIT_EXEC_PATH", "OPENSSL_CONF", "LUA_INIT", "COVE_HOME", "LESSOPEN", "DOTNET_STARTUP_HOOKS",
	} {
		err := CheckEnv(map[string]string{"OK": "1", name: "sesame"})
		if cove.ErrorCode(err) != cove.Forbidden || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: the error shows the value: %v", name, err)
		}
	}
	for _, name := range []string{"API_KEY", "LANG", "LC_ALL", "TZ", "DEBUG", "NODE_ENV", "GOMAXPROCS", "GOGC", "GODEBUG",
		"GOOGLE_API_KEY", "GIT_AUTHOR_NAME",
		"ENVIRONMENT", "MY_PATH", "PATHS", "HOMEPAGE", "LDAP_URL", "LDFLAGS", "_", "a1", "TMPDIR", "USER", "TERM",
		"FORCE_COLOR", "HTTP_PROXY", "CCACHE", "IFSX",
		"DATABASE_URL", "PASSWORD", "JAVA_HOME", "RABBITMQ"} {
		if err := CheckEnv(map[string]string{name: "a=b c\n\xff"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckEnv(nil); err != nil {
		t.Error(err)
	}
}

func TestCheckEnvMalformed(t *testing.T) {
	many := map[string]string{}
	for i := range MaxEnvCount + 1 {
		many["A"+strings.Repeat("B", i%200)+strings.Repeat("C", i/200)] = ""
	}
	heavy := map[string]string{}
	for i := range 9 {
		heavy["A"+strings.Repeat("B", i)] = strings.Repeat("x", MaxEnvValue)
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		code cove.Code
	}{
		{"empty name", map[string]string{"": "x"}, cove.InvalidArgument},
		{"equals sign", map[string]string{"A=B": "x"}, cove.InvalidArgument},
		{"smuggled", map[string]string{"A=1\x00LD_PRELOAD": "x"}, cove.InvalidArgument},
		{"digit first", map[string]string{"1A": "x"}, cove.InvalidArgument},
		{"space", map[string]string{" PATH": "x"}, cove.InvalidArgument},
		{"newline", map[string]string{"A\n": "x"}, cove.InvalidArgument},
		{"exported function", map[string]string{"BASH_FUNC_ls%%": "() { id; }"}, cove.InvalidArgument},
		{"not ASCII", map[string]string{"PÄTH": "x"}, cove.InvalidArgument},
		{"folds to ASCII", map[string]string{"LD_PRELOAD\u212A": "x"}, cove.InvalidArgument},
		{"long name", map[string]string{strings.Repeat("A", MaxEnvName+1): "x"}, cove.InvalidArgument},
		{"NUL in value", map[string]string{"A": "a\x00LD_PRELOAD=x"}, cove.InvalidArgument},
		{"long value", map[string]string{"A": strings.Repeat("x", MaxEnvValue+1)}, cove.TooLarge},
		{"too many", many, cove.InvalidArgument},
		{"too much", heavy, cove.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckEnv(c.env)
			if cove.ErrorCode(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if len(err.Error()) > 500 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzCheckEnv(f *testing.F) {
	f.Add("LD_PRELOAD", "x")
	f.Add("A=B", "\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckEnv(map[string]string{name: value}) != nil {
			return
		}
		if strings.ContainsAny(name, "=\x00\n ") || strings.Contains(value, "\x00") ||
			strings.HasPrefix(strings.ToUpper(name), "LD_") {
			t.Errorf("%q=%q is accepted", name, value)
		}
	})
}

func TestParks(t *testing.T) {
	for _, c := range []struct {
		language, code string
		parks          bool
	}{
		{"python", "print(1)", true},
		{"python", "", true},
		{"perl", "", false},
		{"python", strings.Repeat("#", 32<<10), true},
		{"python", strings.Repeat("#", 32<<10+1), false},
		{"python", "# -*- coding: utf-8 -*-", true},
		{"python", "#!/usr/bin/python3\n# vim: set fileencoding=UTF_8-sig :", true},
		{"python", "# coding=utf8", false},
		{"python", "#!/usr/bin/python3\r\n# coding: latin-1\r\n", false},
		{"python", "\ufeff# coding: latin-1", false},
		{"python", "print(1)\n\n# coding: latin-1", true},
		{"node", "// coding: latin-1", true},
		{"python", "print(1)\n\x00", false},
		{"bash", "echo a\x00", false},
		{"bash", "\x7fELF", false},
	} {
		r, err := Lookup(c.language)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Parks([]byte(c.code)); got != c.parks {
			t.Errorf("%s %.40q: %t", c.language, c.code, got)
		}
	}
}
