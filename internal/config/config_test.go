package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// source is a user's environment with these variables ("NAME=value").
func source(environ ...string) Source {
	environ = append([]string{"HOME=/home/u"}, environ...)
	return Source{Environ: environ, UID: 1000, Getenv: func(name string) string {
		for _, e := range environ {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cove.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	s := source(environ...)
	s.Path = write(t, text)
	c, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestDefaultsAreValid(t *testing.T) {
	for name, s := range map[string]Source{"user": source(), "root": {Getenv: func(string) string { return "" }}} {
		c, err := Load(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b := c.Bounds()
		if b.Defaults != runtime.Defaults || b.Max != runtime.Max {
			t.Errorf("%s: bounds are %+v, not those of package runtime", name, b)
		}
	}
}

func TestDirectories(t *testing.T) {
	for _, c := range []struct {
		name, home, run string
		s               Source
	}{
		{"root", "/var/lib/cove", "/run/cove", Source{Getenv: func(string) string { return "" }}},
		{"user", "/home/u/.local/share/cove", "/home/u/.local/share/cove/run", source()},
		{"user with XDG", "/d/cove", "/r/cove", source("XDG_DATA_HOME=/d", "XDG_RUNTIME_DIR=/r")},
		{"relative XDG is ignored", "/home/u/.local/share/cove", "/home/u/.local/share/cove/run",
			source("XDG_DATA_HOME=d", "XDG_RUNTIME_DIR=r")},
		{"set", "/a", "/b", source("COVE_HOME=/a", "COVE_RUN_DIR=/b", "XDG_DATA_HOME=/d")},
	} {
		got, err := Load(c.s)
		if err != nil || got.Home != c.home || got.RunDir != c.run {
			t.Errorf("%s: home %q, run_dir %q (%v)", c.name, got.Home, got.RunDir, err)
		}
	}
}

func TestPrecedence(t *testing.T) {
	path := write(t, "listen: 127.0.0.1:1\nengine: docker\nsandbox:\n  queue: 2\n  max_concurrent: 3\n")
	s := source("COVE_SANDBOX_QUEUE=20", "COVE_ENGINE=auto", "COVE_CONFIG="+path)
	s.Flags = map[string]string{"engine": "native", "audit.retention": "2d"}
	c, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:1" || c.Engine != "native" || c.Sandbox.Queue != 20 || c.Sandbox.MaxConcurrent != 3 ||
		c.Audit.Retention.Std() != 48*time.Hour || c.Log.Level != "info" {
		t.Errorf("got %+v", c)
	}
	for name, want := range map[string]Origin{"listen": Origin("file " + path + ":1"),
		"sandbox.max_concurrent": Origin("file " + path + ":5"),
		"sandbox.queue":          "env COVE_SANDBOX_QUEUE", "engine": "flag", "log.level": "default"} {
		if got := c.Origin(name); got != want {
			t.Errorf("%s is from %q, want %q", name, got, want)
		}
	}
}

// TestConfigPath: a file that CONFIG_PATH names is read where COVE_CONFIG names none.
func TestConfigPath(t *testing.T) {
	path, other := write(t, "engine: docker\n"), write(t, "engine: auto\n")
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"CONFIG_PATH=" + path}, "docker"},
		{[]string{"CONFIG_PATH=" + path, "COVE_CONFIG=" + other}, "auto"},
		{[]string{"CONFIG_PATH="}, "native"},
	} {
		got, err := Load(source(c.env...))
		if err != nil || got.Engine != c.want {
			t.Errorf("%v: %+v, %v", c.env, got, err)
		}
	}
	if _, err := Load(source("CONFIG_PATH=/does/not/exist")); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestPort(t *testing.T) {
	if c := load(t, "listen: 127.0.0.9:1", "PORT=9000"); c.Listen != "127.0.0.9:9000" || c.Origin("listen") != "env PORT" {
		t.Errorf("listen %q from %q", c.Listen, c.Origin("listen"))
	}
	if c := load(t, "", "PORT=9000", "COVE_LISTEN=127.0.0.1:1"); c.Listen != "127.0.0.1:1" {
		t.Errorf("listen %q", c.Listen)
	}
	for _, port := range []string{"x", "-1", "65536", "80:80"} {
		if _, err := Load(source("PORT=" + port)); cove.ErrorCode(err) != cove.InvalidArgument ||
			!strings.Contains(err.Error(), "PORT") {
			t.Errorf("%s: %v", port, err)
		}
	}
}

func TestAllKinds(t *testing.T) {
	c := load(t, `
listen: "[::1]:0"
allowed_hosts: [a.test, b.test]
tls: {cert: /c, key: /k}
api_keys:
  - {name: ci, hash: `+hash+`}
  - name: dev
    hash: `+strings.ToUpper(hash)+`
sandbox:
  allowed_workdir_roots:
    - /srv/work
  default_limits: {cpus: 0.5, timeout: 1500ms}
rate_limit: {per_second: 0.5}
`)
	if c.Listen != "[::1]:0" || !reflect.DeepEqual(c.AllowedHosts, []string{"a.test", "b.test"}) || c.TLS.Key != "/k" ||
		len(c.APIKeys) != 2 || !reflect.DeepEqual(c.APIKeys[0], APIKey{Name: "ci", Hash: hash}) ||
		c.Sandbox.AllowedWorkdirRoots[0] != "/srv/work" || c.Sandbox.DefaultLimits.CPUs != .5 ||
		c.Sandbox.DefaultLimits.Timeout.Std() != 1500*time.Millisecond || c.RateLimit.PerSecond != .5 {
		t.Errorf("got %+v", c)
	}
	e := load(t, "", "COVE_ALLOWED_HOSTS=a, b", "COVE_API_KEYS=ci:"+hash+",dev:"+hash,
		"COVE_SANDBOX_ALLOWED_WORKDIR_ROOTS=/a,/b", "COVE_RATE_LIMIT_PER_SECOND=3")
	if !reflect.DeepEqual(e.AllowedHosts, []string{"a", "b"}) || len(e.APIKeys) != 2 ||
		len(e.Sandbox.AllowedWorkdirRoots) != 2 || e.RateLimit.PerSecond != 3 {
		t.Errorf("got %+v", e)
	}
}

func TestEmptyFiles(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "tls:\nsandbox:\n", "null"} {
		load(t, text)
	}
}

// TestRefusals shows the whole message, as a user sees it, for each kind of mistake.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, file string
		environ    []string
		says       []string
	}{
		{"unknown setting", "engine: native\nlisten_on: x\n", nil,
			[]string{"cove.yaml:2: there is no setting \"listen_on\"", "listen"}},
		{"unknown setting in a section", "sandbox:\n  queue: 1\n  max_concurent: 3\n", nil,
			[]string{"cove.yaml:3:", "sandbox.max_concurent", "max_concurrent"}},
		{"setting in the wrong section", "log:\n  queue: 3\n", nil, []string{"cove.yaml:2:", "did you mean sandbox.queue?"}},
		{"twice", "engine: native\nengine: docker\n", nil, []string{"cove.yaml", "2", "engine"}},
		{"section twice", "log:\n  level: info\nlog:\n  format: json\n", nil, []string{"cove.yaml", "3"}},
		{"not YAML", "engine: [native\n", nil, []string{"cove.yaml is not YAML", "line"}},
		{"tabs", "sandbox:\n\tqueue: 1\n", nil, []string{"cove.yaml is not YAML", "line 2"}},
		{"two documents", "engine: native\n---\nengine: docker\n", nil, []string{"more than one"}},
		{"a list", "- engine\n", nil, []string{"cove.yaml:1: the file must be a mapping"}},
		{"text for a section", "sandbox: yes\n", nil, []string{"cove.yaml:1: sandbox must be a mapping"}},
		{"mapping for a text", "engine:\n  name: native\n", nil, []string{"cove.yaml:2: engine: must be one value"}},
		{"no value", "engine:\n", nil, []string{"cove.yaml:1: engine: has no value"}},
		{"text for a number", "sandbox:\n  queue: many\n", nil,
			[]string{"cove.yaml:2: sandbox.queue: \"many\" is not a whole number"}},
		{"fraction for a number", "sandbox:\n  queue: 1.5\n", nil, []string{"cove.yaml:2:", "whole number"}},
		{"number without a unit", "shutdown_grace: 10\n", nil,
			[]string{"cove.yaml:1: shutdown_grace: \"10\" is not a time such as"}},
		{"text for a list", "allowed_hosts: a\n", nil, []string{"cove.yaml:1: allowed_hosts: must be a list"}},
		{"anchors", "listen: &x 127.0.0.1:1\nengine: *x\n", nil, []string{"cove.yaml:1: anchors"}},
		{"key with a password", "api_keys:\n  - name: ci\n    key: secret\n", nil,
			[]string{"cove.yaml:2: api_keys: line 3: a key has name and hash, and may have scopes", `"key"`}},
		{"agent with a key that is none", "agents:\n  - name: mine\n    headless: [mine]\n    promt: stdin\n", nil,
			[]string{"cove.yaml:2: agents: line 4: there is no key \"promt\" here"}},
		{"agent without a command", "agents:\n  - name: mine\n", nil,
			[]string{"line 2: the agent \"mine\"", "headless, interactive or both"}},
		{"agents in the environment", "", []string{"COVE_AGENTS=mine"}, []string{"COVE_AGENTS", "file only"}},
		{"short hash", "api_keys: [{name: ci, hash: abcd}]\n", nil,
			[]string{"api_keys", "cove.yaml:1", "cove config new-key ci"}},
		{"key without a name", "api_keys: [{hash: " + hash + "}]\n", nil, []string{"api_keys", "not a name"}},
		{"key name twice", "api_keys: [{name: a, hash: " + hash + "}, {name: a, hash: " + hash + "}]\n", nil,
			[]string{"api_keys", "twice"}},
		{"key with a scope that is none", "api_keys: [{name: a, hash: " + hash + ", scopes: [run, write]}]\n", nil,
			[]string{"api_keys", `the key "a": "write" is no scope`, "run, sandboxes, agents, read, approve, metrics, admin"}},
		{"key with no scope at all", "api_keys: [{name: a, hash: " + hash + ", scopes: []}]\n", nil,
			[]string{"scopes names none", "leave scopes out"}},
		{"key with a text for scopes", "api_keys: [{name: a, hash: " + hash + ", scopes: run}]\n", nil,
			[]string{"scopes must be a list"}},
		{"key that expires some day", "api_keys: [{name: a, hash: " + hash + ", expires: soon}]\n", nil,
			[]string{`expires: "soon" is not a date`, "2027-01-31"}},
		{"key with a part of a run at once", "api_keys: [{name: a, hash: " + hash + ", concurrent: 1.5}]\n", nil,
			[]string{`concurrent: "1.5" is not a number above 0`, "for no bound"}},
		{"key without sandboxes", "api_keys: [{name: a, hash: " + hash + ", sandboxes: 0}]\n", nil,
			[]string{`sandboxes: "0" is not a number above 0`}},
		{"key with a budget of euros", "api_keys: [{name: a, hash: " + hash + ", model_budget: \"euros=1\"}]\n", nil,
			[]string{`model_budget: "euros=1" is no budget`, "requests=100,tokens=200000,cost=1.50"}},
		{"key with CPU time of a week", "api_keys: [{name: a, hash: " + hash + ", cpu_seconds: \"week=1\"}]\n", nil,
			[]string{`cpu_seconds: "week=1" is not understood`, "hour=600,day=3600"}},
		{"open without keys", "listen: 0.0.0.0:8080\n", nil,
			[]string{"listen: 0.0.0.0:8080 can be reached from other machines", "cove config new-key"}},
		{"all addresses without keys", "listen: :8080\n", nil, []string{"listen", "other machines"}},
		{"a name without keys", "listen: box.example:8080\n", nil, []string{"listen", "other machines"}},
		{"no port", "listen: 127.0.0.1\n", nil, []string{"listen", "host:port"}},
		{"bad port", "listen: 127.0.0.1:http\n", nil, []string{"listen", "port"}},
		{"half of TLS", "tls: {cert: /c}\n", nil, []string{"tls.key: is missing"}},
		{"relative home", "home: state\n", nil, []string{"home", "absolute"}},
		{"root as a root", "sandbox: {allowed_workdir_roots: [/]}\n", nil, []string{"allowed_workdir_roots", "below /"}},
		{"relative root", "sandbox: {allowed_workdir_roots: [work]}\n", nil, []string{"allowed_workdir_roots"}},
		{"control group elsewhere", "sandbox: {cgroup_parent: ../x}\n", nil, []string{"cgroup_parent"}},
		{"control group of a long name", "sandbox: {cgroup_parent: a.slice/" + strings.Repeat("b", 102) + "}\n", nil,
			[]string{"cgroup_parent"}},
		{"unknown engine", "engine: runc\n", nil, []string{"engine: \"runc\" is none of native, docker, podman, auto",
			"cove.yaml:1"}},
		{"unknown level", "log: {level: verbose}\n", nil, []string{"log.level"}},
		{"no concurrency", "sandbox: {max_concurrent: 0}\n", nil,
			[]string{"sandbox.max_concurrent: 0 is out of range", "1 to 10000"}},
		{"less than no computing", "sandbox: {max_computing: -1}\n", nil,
			[]string{"sandbox.max_computing: -1 is out of range", "0 to 10000"}},
		{"no module's name", "sandbox: {pool: {python_modules: [json, 'os; x']}}\n", nil,
			[]string{`sandbox.pool.python_modules: "os; x" is no name of a module`, "as after import"}},
		{"modules without zygotes", "sandbox: {pool: {python_modules: [json], zygotes: false}}\n", nil,
			[]string{"sandbox.pool.python_modules: modules are loaded ahead in zygotes alone", "sandbox.pool.zygotes to true"}},
		{"a wait of no time", "sandbox: {max_wait: 1ms}\n", nil, []string{"sandbox.max_wait: 1ms is out of range"}},
		{"not a number", "rate_limit: {per_second: .nan}\n", nil, []string{"rate_limit.per_second"}},
		{"negative rate", "rate_limit: {per_second: -1}\n", nil, []string{"rate_limit.per_second: -1 is out of range"}},
		{"gateway's rate", "gateway: {rate_limit: {per_second: -1}}\n", nil,
			[]string{"gateway.rate_limit.per_second: -1 is out of range"}},
		{"gateway's burst", "gateway: {rate_limit: {burst: 0}}\n", nil,
			[]string{"gateway.rate_limit.burst: 0 is out of range"}},
		{"GitHub server", "gateway: {github_hosts: [\"https://github.example.com\"]}\n", nil,
			[]string{"gateway.github_hosts", "github.example.com"}},
		{"an engine that is none", "sandbox: {pool: {warm: [{runtime: python, engine: runc}]}}\n", nil,
			[]string{"sandbox.pool.warm: python: the engine \"runc\" is none of native, docker, podman",
				"leave it out", "cove.yaml:1"}},
		{"prepared for no runtime", "sandbox: {pool: {warm: [{most: 2}]}}\n", nil,
			[]string{"sandbox.pool.warm: entry 1 names no runtime", "runtime: python"}},
		{"more at least than at most", "sandbox: {pool: {warm: [{runtime: node, least: 3, most: 2}]}}\n", nil,
			[]string{"sandbox.pool.warm: node: least: 3 is out of range", "0 to 2"}},
		{"a refill above the most", "sandbox: {pool: {warm: [{runtime: node, most: 2, refill: 3}]}}\n", nil,
			[]string{"node: refill: 3 is out of range", "0 to 2"}},
		{"an age of no time", "sandbox: {pool: {warm: [{runtime: node, max_age: 1s}]}}\n", nil,
			[]string{"node: max_age: 1s is out of range", "10s or more"}},
		{"limits beyond the most", "sandbox: {pool: {warm: [{runtime: node, limits: {memory_mb: 99999999}}]}}\n", nil,
			[]string{"sandbox.pool.warm: node: limits: ", "memory"}},
		{"a misspelt limit", "sandbox: {pool: {warm: [{runtime: node, limits: {memory: 1}}]}}\n", nil,
			[]string{"line 1: there is no \"limits.memory\" here", "memory_mb"}},
		{"a misspelt number", "sandbox: {pool: {warm: [{runtime: node, min: 1}]}}\n", nil,
			[]string{"line 1: there is no \"min\" here", "least, limits, max_age, most"}},
		{"no number", "sandbox: {pool: {warm: [{runtime: node, most: many}]}}\n", nil,
			[]string{"line 1: most: \"many\" is not a whole number"}},
		{"an entry that is a list", "sandbox: {pool: {warm: [[node]]}}\n", nil, []string{"line 1: must be RUNTIME, "}},
		{"two entries for the same", "sandbox: {pool: {warm: [node, {runtime: node, most: 2}]}}\n", nil,
			[]string{"the entries 1 and 2 are about the same executions", "another image, engine or limits"}},
		{"prepared containers", "sandbox: {pool: {docker: {size: -1}}}\n", nil,
			[]string{"sandbox.pool.docker.size: -1 is out of range", "0 to 1000"}},
		{"short retention", "audit: {retention: 1s}\n", nil, []string{"audit.retention: 1s is out of range"}},
		{"negative size of the log", "audit: {max_mb: -1}\n", nil, []string{"audit.max_mb: -1 is out of range"}},
		{"few decisions", "audit: {decisions: 10}\n", nil, []string{"audit.decisions: 10 is out of range"}},
		{"negative limit", "sandbox: {max_limits: {memory_mb: -5}}\n", nil, []string{"max_limits", "memory of"}},
		{"overflowing limit", "sandbox: {max_limits: {memory_mb: 99999999999999999}}\n", nil,
			[]string{"max_limits", "memory of"}},
		{"default over the maximum", "sandbox: {max_limits: {pids_limit: 10}}\n", nil,
			[]string{"default pids of 50 is over the maximum of 10"}},
		{"variable of the wrong kind", "", []string{"COVE_SANDBOX_QUEUE=x"}, []string{"COVE_SANDBOX_QUEUE", "whole number"}},
		{"variable that opens the server", "", []string{"COVE_LISTEN=0.0.0.0:1"}, []string{"listen", "env COVE_LISTEN"}},
		{"key variable", "", []string{"COVE_API_KEYS=secret"}, []string{"COVE_API_KEYS", "NAME:HASH"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(c.environ...)
			s.Path = write(t, c.file)
			_, err := Load(s)
			if cove.ErrorCode(err) != cove.InvalidArgument {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q shows a secret", err)
			}
		})
	}
}

func TestMissingFileAndUnknownFlag(t *testing.T) {
	s := source()
	s.Path = "/nonexistent/cove.yaml"
	if _, err := Load(s); cove.ErrorCode(err) != cove.NotFound || !strings.Contains(err.Error(), s.Path) {
		t.Errorf("got %v", err)
	}
	s = source()
	s.Flags = map[string]string{"sandbox.quue": "1"}
	if _, err := Load(s); cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), "queue") {
		t.Errorf("got %v", err)
	}
}

func TestWarnings(t *testing.T) {
	s := source("COVE_SANDBOX_QEUE=1", "COVE_API_KEY=k", "COVE_SERVER=s", "COVER=1")
	s.Path = write(t, "")
	if err := os.Chmod(s.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	w := strings.Join(c.Warnings(), "\n")
	if len(c.Warnings()) != 2 || !strings.Contains(w, "written by others") || !strings.Contains(w, "COVE_SANDBOX_QEUE") {
		t.Errorf("warnings: %s", w)
	}
}

func TestShow(t *testing.T) {
	c := load(t, "api_keys: [{name: ci, hash: "+hash+"}]\nallowed_hosts: [\"a, b\", x]\nengine: docker\n",
		"COVE_LOG_LEVEL=debug")
	var b bytes.Buffer
	if err := c.Show(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"listen: 127.0.0.1:8080  # default\n", "engine: docker  # file ", "cove.yaml:3\n",
		"  level: debug  # env COVE_LOG_LEVEL\n",
		"  default_limits:\n    memory_mb: 256  # default\n", "retention: 30d  # default\n", "name: ci"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, hash) {
		t.Errorf("the whole hash is shown:\n%s", text)
	}
	// What is shown can be read back.
	text = regexp.MustCompile(`(?m)^api_keys:.*$`).ReplaceAllString(text, "")
	again := load(t, text)
	again.APIKeys, again.origins, again.File = c.APIKeys, c.origins, c.File
	if !reflect.DeepEqual(again, c) {
		t.Errorf("read back %+v\nshown %+v", again, c)
	}
}

// TestDiffering: of the settings that a command brings, those are found that a server has otherwise; how the server is
// reached, and what it logs, is its own.
func TestDiffering(t *testing.T) {
	server := load(t, "engine: docker\nlisten: 127.0.0.1:9999\nsandbox: {queue: 7, default_limits: {timeout: 2s}}\n")
	for _, c := range []struct {
		file string
		env  []string
		want []string
	}{
		{"", nil, nil},
		{"engine: docker\n", nil, nil},
		{"engine: native\n", nil, []string{"engine"}},
		{"listen: 127.0.0.1:1\nlog: {level: debug}\nrate_limit: {burst: 3}\nshutdown_grace: 1s\n", nil, nil},
		{"", []string{"COVE_SANDBOX_QUEUE=8", "COVE_SANDBOX_DEFAULT_LIMITS_TIMEOUT=2s", "COVE_HOME=/elsewhere"},
			[]string{"home", "sandbox.queue"}},
		{"gateway: {private_cidrs: [10.0.0.0/8]}\n", nil, []string{"gateway.private_cidrs"}},
	} {
		if got := load(t, c.file, c.env...).Differing(server.Digests()); !slices.Equal(got, c.want) {
			t.Errorf("%q, %q: %v, want %v", c.file, c.env, got, c.want)
		}
	}
}

// TestExample holds docs/cove.example.yaml to the code: what it sets is the
// default, every setting is in it, and its examples are accepted.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../../docs/cove.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	got := load(t, text)
	want, err := Load(source())
	if err != nil {
		t.Fatal(err)
	}
	got.origins, got.File = want.origins, want.File
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example has %+v\nthe defaults are %+v", got, want)
	}
	// Prose has a space after #; examples have none before the name.
	examples := regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(text, "$1")
	all := load(t, examples)
	for _, s := range all.leaves() {
		if all.Origin(s.name) == "default" {
			t.Errorf("the example does not have %s", s.name)
		}
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	c := &Config{}
	if all := c.settings(); len(all) != len(c.leaves()) {
		t.Errorf("%d settings, %d names", len(all), len(c.leaves()))
	}
	for _, s := range c.leaves() {
		if s.doc == "" {
			t.Errorf("%s has no documentation", s.name)
		}
	}
}

func TestNewAPIKey(t *testing.T) {
	a, hashA := NewAPIKey()
	b, _ := NewAPIKey()
	if a == b || len(a) != len("cove_")+64 || len(hashA) != 64 || HashAPIKey(a) != hashA {
		t.Errorf("%q %q %q", a, b, hashA)
	}
}

// TestGrants: what a key may do and use, from the file, from "new-key" and from the environment; a key that says
// nothing may do what it could before there were scopes.
func TestGrants(t *testing.T) {
	k := APIKey{Name: "bot", Hash: hash, Scopes: []string{"run", "read"}, Expires: "2027-01-31", Concurrent: "4",
		Rate: "2.5", CPUSeconds: "hour=600,day=3600", Sandboxes: "3", DiskMB: "2048", Models: "tokens=9,cost=1.5"}
	c := load(t, "api_keys:\n"+k.Entry()+APIKey{Name: "plain", Hash: hash}.Entry())
	want := access.Grants{
		cove.KeyHolder("bot"): {Scopes: []access.Scope{access.Run, access.Read}, Concurrent: 4, Rate: 2.5,
			Expires: time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC), CPUHour: 10 * time.Minute, CPUDay: time.Hour,
			Sandboxes: 3, Disk: 2 << 30, Models: cove.Budget{Tokens: 9, Cost: 1.5}},
		cove.KeyHolder("plain"): {Scopes: access.Usual},
	}
	if got := c.Grants(); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(c.APIKeys[0], k) {
		t.Errorf("%+v\n%+v", c.APIKeys, got)
	}
	shown := c.settings()["api_keys"].show()
	if !strings.Contains(shown, `scopes: [run, read], expires: "2027-01-31", concurrent: "4", rate: "2.5", `+
		`cpu_seconds: "hour=600,day=3600"`) || strings.Contains(shown, hash) {
		t.Errorf("shown as %s", shown)
	}
	if got := load(t, "", "COVE_API_KEYS=ci:"+hash).Grants(); !reflect.DeepEqual(got,
		access.Grants{cove.KeyHolder("ci"): {Scopes: access.Usual}}) {
		t.Errorf("from the environment %+v", got)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "10s": 10 * time.Second, "30d": 30 * day,
		"1h30m": 90 * time.Minute} {
		d, err := ParseDuration(text)
		if err != nil || d.Std() != want {
			t.Errorf("%s: %v, %v", text, d, err)
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%s is shown as %s", text, d)
		}
	}
	for _, text := range []string{"", "10", "d", "1.5d", "999999999999d", "10 s", "1w"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("engine: native\nsandbox:\n  queue: 3\n"))
	f.Add([]byte("api_keys: [{name: a, hash: b}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Defaults(source().Getenv, 1000)
		c.origins = map[string]Origin{}
		if c.parse(c.settings(), "f", data) == nil && c.Validate() == nil {
			if err := c.Show(new(bytes.Buffer)); err != nil {
				t.Error(err)
			}
		}
	})
}
