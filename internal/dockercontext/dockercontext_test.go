package dockercontext

import (
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// command runs the docker command in an environment of nothing but env.
func command(t *testing.T, env map[string]string, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("docker")
	if err != nil {
		t.Skip("needs the docker command: apt-get install docker.io")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"PATH=/nowhere"} // with no plugins
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestAsDocker: the endpoint is that of the docker command, whatever says which.
func TestAsDocker(t *testing.T) {
	config, home := t.TempDir(), t.TempDir()
	if err := os.Symlink(config, filepath.Join(home, ".docker")); err != nil {
		t.Fatal(err)
	}
	authority := httptest.NewTLSServer(nil)
	defer authority.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"DOCKER_CONFIG": config}
	for name, endpoint := range map[string]string{
		"near": "host=unix:///run/other.sock", "far": "host=tcp://192.0.2.1:2376",
		"safe": "host=tcp://192.0.2.2:2376,ca=" + ca, "lax": "host=tcp://192.0.2.3:2376,skip-tls-verify=true",
		"shell": "host=ssh://me@192.0.2.4"} {
		if out, err := command(t, env, "context", "create", name, "--docker", endpoint); err != nil {
			t.Fatalf("docker context create: %s", out)
		}
	}
	for _, c := range []struct {
		use string
		env map[string]string
	}{
		{use: "default"}, {use: "near"}, {use: "far"}, {use: "safe"}, {use: "lax"}, {use: "shell"},
		{use: "near", env: map[string]string{"DOCKER_CONTEXT": "far"}},
		{use: "near", env: map[string]string{"DOCKER_CONTEXT": "default"}},
		{use: "near", env: map[string]string{"DOCKER_CONTEXT": "missing"}},
		{use: "near", env: map[string]string{"DOCKER_CONTEXT": "far", "DOCKER_HOST": "unix:///run/third.sock"}},
		{use: "near", env: map[string]string{"DOCKER_CONFIG": "", "HOME": home}},
	} {
		if out, err := command(t, env, "context", "use", c.use); err != nil {
			t.Fatalf("docker context use: %s", out)
		}
		vars := map[string]string{"DOCKER_CONFIG": config}
		for name, value := range c.env {
			vars[name] = value
		}
		got, err := Current(func(name string) string { return vars[name] })
		said, failed := command(t, vars, "context", "inspect", "--format",
			`{{json .Endpoints.docker.Host}} {{.Endpoints.docker.SkipTLSVerify}} {{json .TLSMaterial}}`)
		if vars["DOCKER_CONTEXT"] == "missing" {
			if failed == nil || cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), `"missing"`) {
				t.Errorf("%+v: %v; docker: %s", c, err, said)
			}
			continue
		}
		if failed != nil || err != nil {
			t.Errorf("%+v: %v; docker: %s", c, err, said)
			continue
		}
		host := got.Host
		if host == "" {
			host = "unix:///var/run/docker.sock"
		}
		quoted, err := json.Marshal(host)
		if err != nil {
			t.Fatal(err)
		}
		want := string(quoted) + " false"
		if got.TLS != nil && got.TLS.SkipVerify {
			want = string(quoted) + " true"
		}
		if !strings.HasPrefix(said, want+" ") || strings.Contains(said, "ca.pem") != (got.TLS != nil && got.TLS.CA != "") {
			t.Errorf("%+v: %+v; docker: %s", c, got, said)
		}
	}
}

// TestBroken: a context that is missing or broken, or of which Cove reaches no daemon, is refused with what is wrong.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct {
		config, meta string
		tls          map[string]string
		says         string
		unsupported  bool
	}{
		"config":   {config: "{", says: "config.json"},
		"missing":  {says: `there is no Docker context "x"`},
		"cut off":  {meta: "{", says: `the Docker context "x"`},
		"other":    {meta: `{"Name":"y"}`, says: `of the context "y"`},
		"no host":  {meta: `{"Name":"x","Endpoints":{"kubernetes":{"Host":"a"}}}`, says: "no Docker daemon"},
		"a pipe":   {meta: of("npipe:////./pipe/docker_engine"), says: `"npipe:////./pipe/docker_engine"`, unsupported: true},
		"half key": {meta: of("tcp://a:1"), tls: map[string]string{"key.pem": "k"}, says: "without the other"},
		"no CA":    {meta: of("tcp://a:1"), tls: map[string]string{"ca.pem": "k"}},
	} {
		dir := t.TempDir()
		if c.config == "" {
			c.config = `{"currentContext": "x"}`
		}
		files := map[string]string{"config.json": c.config}
		if c.meta != "" {
			files["contexts/meta/"+digestOfX+"/meta.json"] = c.meta
		}
		for file, text := range c.tls {
			files["contexts/tls/"+digestOfX+"/docker/"+file] = text
		}
		for file, text := range files {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e, err := Current(func(name string) string { return map[string]string{"DOCKER_CONFIG": dir}[name] })
		if c.says == "" {
			if err != nil || e.TLS == nil {
				t.Fatalf("%s: %+v, %v", name, e, err)
			}
			if _, err := e.TLS.Config(); err == nil || !strings.Contains(err.Error(), "no certificate") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		code := cove.InvalidArgument
		if c.unsupported {
			code = cove.Unsupported
		}
		if cove.ErrorCode(err) != code || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(cove.ErrorHint(err), "DOCKER_HOST") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// digestOfX names the files of the context x.
const digestOfX = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

func of(host string) string { return `{"Name":"x","Endpoints":{"docker":{"Host":"` + host + `"}}}` }

// FuzzContext: of whatever a meta.json says, only an address with a scheme that Cove speaks is taken.
func FuzzContext(f *testing.F) {
	for _, text := range []string{of("tcp://a:1"), of("unix:///s"), of("npipe:////./p"), "{", `{"Name":"x"}`,
		`{"Name":"x","Endpoints":{"docker":{"Host":"ssh://a","SkipTLSVerify":true}}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		host, _, err := parse("x", text)
		known := strings.HasPrefix(host, "tcp://") || strings.HasPrefix(host, "unix://") || strings.HasPrefix(host, "ssh://")
		if (err == nil) != known {
			t.Errorf("%q, %v", host, err)
		}
	})
}
