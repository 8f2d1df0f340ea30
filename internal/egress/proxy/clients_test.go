package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runClient runs a real program, with the sandbox's authority in its trust store and its own home, and returns its
// output.
func (l *lab) runClient(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ca := file(t, "ca.pem", l.inside.pem)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"SSL_CERT_FILE=" + ca, "CURL_CA_BUNDLE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca, "GIT_SSL_CAINFO=" + ca,
	}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + "\n" + err.Error()
	}
	return string(out)
}

// TestRealClients runs unmodified programs, allowed and blocked.
func TestRealClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	l := newLab(t)
	l.permit("allowed.lab", "git.lab")
	l.serve("allowed.lab", "203.0.113.1", nil)
	denied := l.serve("denied.lab", "203.0.113.2", nil)
	l.serveGit(t, "git.lab", "203.0.113.3")

	proxy := "http://" + l.explicit
	env := []string{"HTTPS_PROXY=" + proxy, "https_proxy=" + proxy, "http_proxy=" + proxy}
	at443 := l.transparent("203.0.113.1:443")
	_, port, _ := net.SplitHostPort(at443)
	const urllib = `import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1]).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
except OSError as e:
    print(e)`
	const node = `const https = require("https");
https.get({host: "127.0.0.1", port: process.argv[1], servername: process.argv[2], headers: {host: process.argv[2]}}, res => {
  res.on("data", d => process.stdout.write(d)); }).on("error", e => console.log(e.message));`
	const nodeConnect = `const http = require("http"), https = require("https"), [host, port] = process.argv[1].split(":");
http.request({host, port, method: "CONNECT", path: process.argv[2] + ":443"}).on("connect", (res, socket) => {
  if (res.statusCode !== 200) { console.log(res.statusCode); return; }
  https.get({socket, agent: false, servername: process.argv[2], host: process.argv[2]}, r => r.on("data", d => process.stdout.write(d)));
}).end();`

	for _, c := range []struct {
		name, want string
		env        []string
		program    string
		args       []string
	}{
		{"curl", "GET https://allowed.lab/x", env, "curl", []string{"-sS", "https://allowed.lab/x"}},
		{"curl, HTTP/1.1", "GET https://allowed.lab/x", env, "curl", []string{"-sS", "--http1.1", "https://allowed.lab/x"}},
		{"curl, plain", "GET http://allowed.lab/x", env, "curl", []string{"-sS", "http://allowed.lab/x"}},
		{"curl, SOCKS", "GET https://allowed.lab/x", nil, "curl",
			[]string{"-sS", "-x", "socks5h://" + l.explicit, "https://allowed.lab/x"}},
		{"curl, upload", `"a=b"`, env, "curl", []string{"-sS", "-d", "a=b", "https://allowed.lab/x"}},
		{"curl, h2c", "GET http://allowed.lab/x", env, "curl", []string{"-sS", "--http2", "http://allowed.lab/x"}},
		{"curl, blocked", `"allow": "cove policy allow sb_test denied.lab"`, env, "curl",
			[]string{"-sS", "http://denied.lab/x"}},
		{"curl, blocked tunnel", `"reason": "no rule allows denied.lab"`, env, "curl",
			[]string{"-sS", "https://denied.lab/x"}},
		{"curl, SOCKS4", "curl: (97)", nil, "curl", []string{"-sS", "-x", "socks4a://" + l.explicit,
			"https://allowed.lab/x"}},
		{"curl, transparent", "GET https://allowed.lab/x", nil, "curl",
			[]string{"-sS", "--connect-to", "::127.0.0.1:" + port, "https://allowed.lab/x"}},
		{"curl, transparent, blocked", `"rule": "default"`, nil, "curl",
			[]string{"-sS", "--connect-to", "::127.0.0.1:" + port, "https://denied.lab/x"}},
		{"urllib", "GET https://allowed.lab/x", env, "/usr/bin/python3", []string{"-c", urllib, "https://allowed.lab/x"}},
		{"urllib, blocked", `"reason": "no rule allows denied.lab"`, env, "/usr/bin/python3",
			[]string{"-c", urllib, "http://denied.lab/x"}},
		{"urllib, blocked tunnel", `"reason": "no rule allows denied.lab"`, env, "/usr/bin/python3",
			[]string{"-c", urllib, "https://denied.lab/x"}},
		{"node", "GET https://allowed.lab/", nil, "node", []string{"-e", node, port, "allowed.lab"}},
		{"node, blocked", `"type": "blocked"`, nil, "node", []string{"-e", node, port, "denied.lab"}},
		{"node, CONNECT", "GET https://allowed.lab/", nil, "node", []string{"-e", nodeConnect, l.explicit, "allowed.lab"}},
		{"node, CONNECT, blocked", `"reason": "no rule allows denied.lab"`, nil, "node",
			[]string{"-e", nodeConnect, l.explicit, "denied.lab"}},
		{"openssl", "Verification: OK", nil, "openssl", []string{"s_client", "-brief", "-proxy", l.explicit, "-connect",
			"allowed.lab:443", "-servername", "allowed.lab", "-CAfile", file(t, "ca.pem", l.inside.pem)}},
		{"openssl, no name", "unrecognized name", nil, "openssl",
			[]string{"s_client", "-proxy", l.explicit, "-connect", "allowed.lab:443", "-noservername"}},
		{"openssl, other name", "unrecognized name", nil, "openssl",
			[]string{"s_client", "-proxy", l.explicit, "-connect", "allowed.lab:443", "-servername", "denied.lab"}},
		{"git", "refs/heads/main", env, "git", []string{"ls-remote", "https://git.lab/repo.git"}},
		{"git, blocked", "remote: blocked by Cove's gateway", env, "git",
			[]string{"ls-remote", "https://denied.lab/repo.git"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := l.runClient(t, c.env, c.program, c.args...); !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if len(denied.seen()) > 0 {
		t.Error("the denied origin was asked")
	}
}

// serveGit serves a repository with one commit, by git itself.
func (l *lab) serveGit(t *testing.T, name, address string) {
	t.Helper()
	root := t.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "HOME="+root, "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main", "work")
	git("-C", "work", "-c", "user.name=x", "-c", "user.email=x@lab", "commit", "-q", "--allow-empty", "-m", "first")
	git("clone", "-q", "--bare", "work", "repo.git")
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root},
	}
	l.serve(name, address, func(w http.ResponseWriter, r *http.Request) { backend.ServeHTTP(w, r) })
}
