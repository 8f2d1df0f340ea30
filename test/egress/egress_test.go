//go:build linux

package egress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	labs "github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/holdings"
)

// clients each fetch $URL and print the body.
var clients = []struct{ name, program, script string }{
	{"curl", "curl", `curl -sS --max-time 30 "$URL"`},
	{"curl, HTTP/1.1", "curl", `curl -sS --http1.1 --max-time 30 "$URL"`},
	{"curl, past the proxy", "curl", `curl -sS --noproxy '*' --max-time 30 "$URL"`},
	{"curl, past the proxy over IPv6", "curl", `curl -sS -6 --noproxy '*' --max-time 30 "$URL"`},
	{"curl, SOCKS5", "curl", `curl -sS --noproxy '' --proxy socks5h://127.0.0.1:3128 --max-time 30 "$URL"`},
	{"curl, a tunnel", "curl", `curl -sS --proxytunnel --max-time 30 "$URL"`},
	{"wget", "wget", `wget -q -O - --timeout 30 "$URL" --content-on-error`},
	{"python urllib", "python3", `/usr/bin/python3 -c '
import os, urllib.request, urllib.error
try: print(urllib.request.urlopen(os.environ["URL"], timeout=30).read().decode(), end="")
except urllib.error.HTTPError as e: print(e.read().decode(), end="")'`},
	{"python http.client, no environment", "python3",
		`env -u HTTP_PROXY -u HTTPS_PROXY -u http_proxy -u https_proxy -u SSL_CERT_FILE -u SSL_CERT_DIR /usr/bin/python3 -c '
import os, urllib.request, urllib.error
try: print(urllib.request.urlopen(os.environ["URL"], timeout=30).read().decode(), end="")
except urllib.error.HTTPError as e: print(e.read().decode(), end="")'`},
	{"node https", "node", `node -e '
const u = process.env.URL; require(u.split(":")[0]).get(u, r => r.pipe(process.stdout)).on("error", e => console.log(e.message))'`},
	{"node fetch", "node",
		`node -e 'fetch(process.env.URL).then(r => r.text()).then(t => process.stdout.write(t), e => console.log(e.message, e.cause))'`},
	{"perl", "perl", `perl -MHTTP::Tiny -e 'print HTTP::Tiny->new(timeout => 30)->get($ENV{URL})->{content}'`},
}

// TestClients: whoever asks, and whether or not it knows of a proxy, what the
// policy allows arrives, and what it does not is answered with the reason.
func TestClients(t *testing.T) {
	l := newLab(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.program); err != nil {
				t.Skip(c.program + " is not installed")
			}
			for _, scheme := range []string{"http", "https"} {
				if scheme == "https" && c.name == "perl" {
					continue // needs a module that is no part of Perl
				}
				l.Forget()
				got := l.inside(t, `export URL=`+scheme+`://good.lab.test/a/path; `+c.script, "--allow", "good.lab.test")
				if want := "GET good.lab.test/a/path over " + scheme + "\n"; got.stdout != want {
					t.Errorf("%s: %+v, want %q", scheme, got, want)
				}
				l.Forget()
				got = l.inside(t, `export URL=`+scheme+`://bad.lab.test/a/path; `+c.script, "--allow", "good.lab.test")
				if seen := l.seen(); len(seen) > 0 {
					t.Errorf("%s: arrived although it is denied: %q", scheme, seen)
				}
				if asked := l.Asked(); len(asked) > 0 {
					t.Errorf("%s: a denied name was looked up: %q", scheme, asked)
				}
				if !strings.Contains(got.stdout+got.stderr, "no rule allows bad.lab.test") {
					t.Errorf("%s: the reason cannot be read: %+v", scheme, got)
				}
				if strings.Contains(got.stdout, " over ") {
					t.Errorf("%s: denied: %+v", scheme, got)
				}
			}
		})
	}
}

// TestJudgedAtEveryLayer: one part of a request that is allowed does not carry another that is not.
func TestJudgedAtEveryLayer(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct{ name, script string }{
		{"another Host in TLS", `curl -sS --max-time 20 -H 'Host: bad.lab.test' https://good.lab.test/x`},
		{"another Host in TLS, HTTP/1.1", `curl -sS --http1.1 --max-time 20 -H 'Host: bad.lab.test' https://good.lab.test/x`},
		{"another Host past the proxy",
			`curl -sS --noproxy '*' --max-time 20 -H 'Host: bad.lab.test' http://good.lab.test/x`},
		{"another name in TLS than in CONNECT",
			`curl -sS --max-time 20 --connect-to bad.lab.test:443:good.lab.test:443 https://bad.lab.test/x`},
		{"no name in TLS", `openssl s_client -quiet -noservername -connect good.lab.test:443 <<< $'GET /x HTTP/1.0\r\n\r\n'`},
		{"a bare address", `curl -sS --noproxy '*' --max-time 20 http://93.184.216.34/x`},
		{"a bare IPv6 address", `curl -sS --noproxy '*' --max-time 20 'http://[2606:2800:220:1::34]/x'`},
		{"an address by CONNECT", `curl -sS --proxytunnel --max-time 20 http://93.184.216.34/x`},
		{"an address in another spelling", `curl -sS --max-time 20 http://1572395042/x`},
		{"another port", `curl -sS --max-time 20 http://good.lab.test:8080/x`},
		{"cloud metadata", `curl -sS --noproxy '*' --max-time 20 http://169.254.169.254/latest/meta-data/`},
		{"a private address behind an allowed name", `curl -sS --max-time 20 http://private.lab.test/x`},
		{"a private address among public ones", `curl -sS --max-time 20 http://mixed.lab.test/x`},
		{"a hosts file of one's own", `python3 -c '
import socket
s = socket.create_connection(("10.9.9.9", 80), 20); s.sendall(b"GET /x HTTP/1.1\r\nHost: bad.lab.test\r\nConnection: close\r\n\r\n"); print(s.recv(1000))'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.Forget()
			got := l.inside(t, c.script, "--allow", "good.lab.test", "--allow", "private.lab.test", "--allow", "mixed.lab.test")
			if seen := l.seen(); len(seen) > 0 {
				t.Errorf("arrived: %q; %+v", seen, got)
			}
			if slices.Contains(l.Asked(), "bad.lab.test") {
				t.Error("the denied name was looked up")
			}
		})
	}
}

// TestWrongAddressRightName: where somebody inside says a name is, is no
// matter; the gateway goes to where it really is.
func TestWrongAddressRightName(t *testing.T) {
	l := newLab(t)
	got := l.inside(t, `curl -sS --noproxy '*' --max-time 20 --resolve good.lab.test:80:10.9.9.9 http://good.lab.test/x
curl -sS --noproxy '*' --max-time 20 --resolve good.lab.test:443:10.9.9.9 https://good.lab.test/x`, "--allow", "good.lab.test")
	if got.stdout != "GET good.lab.test/x over http\nGET good.lab.test/x over https\n" {
		t.Errorf("%+v", got)
	}
}

// TestRebinding: a name that is public when it is looked up, and leads inside when it is dialled, does not get there.
func TestRebinding(t *testing.T) {
	l := newLab(t)
	got := l.inside(t, `curl -sS --noproxy '*' --max-time 20 http://rebound.lab.test/x`, "--allow", "rebound.lab.test")
	if seen := l.seen(); len(seen) > 0 || !strings.Contains(got.stdout, "(loopback)") {
		t.Errorf("arrived: %q; %+v", seen, got)
	}
	if len(l.Asked()) == 0 {
		t.Error("nothing was looked up")
	}
}

// TestModes: what each mode reaches.
func TestModes(t *testing.T) {
	l := newLab(t)
	const script = `for u in http://good.lab.test/ http://private.lab.test/ http://host.cove.internal/; do curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' $u; done 2>/dev/null`
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--network", "limited"}, "403 403 403"},
		{[]string{"--allow", "good.lab.test"}, "200 403 403"},
		{[]string{"--network", "open"}, "200 403 403"},
		{[]string{"--network", "open", "--deny", "good.lab.test"}, "403 403 403"},
		{[]string{"--network", "host-only", "--allow", "host.cove.internal:80", "--allow", "good.lab.test"}, "403 403 502"}, // nobody serves there
		{nil, "000 000 000"},
		{[]string{"--network", "none"}, "000 000 000"},
	} {
		if got := l.inside(t, script, c.flags...); strings.TrimSpace(got.stdout) != c.want {
			t.Errorf("%q: %+v, want %s", c.flags, got, c.want)
		}
	}
}

// TestHostServiceAlias: a service of the machine is reached under the name that programs for containers know, past the
// proxy and through it, with TLS as well; the rule is about the one service, whatever it is called.
func TestHostServiceAlias(t *testing.T) {
	l := newLab(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "the machine's own\n")
	}))
	defer service.Close()
	port := service.Listener.Addr().(*net.TCPAddr).Port
	script := fmt.Sprintf(`for way in "" "--noproxy *"; do for name in host.docker.internal host.cove.internal; do
	curl -sS $way --max-time 20 http://$name:%d/; done; done
curl -sS --max-time 20 -o /dev/null -w '%%{http_code}\n' http://host.docker.internal:%d/
curl -sS --max-time 20 -o /dev/null -w '%%{http_code}\n' https://host.docker.internal:%d/`, port, port+1, port)
	got := l.inside(t, script, "--allow", fmt.Sprintf("host.docker.internal:%d", port))
	// The certificate is accepted under that name; the service then speaks no TLS.
	if want := strings.Repeat("the machine's own\n", 4) + "403\n502\n"; got.stdout != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

// TestLiveChange: a running execution reaches more, and less, as soon as it is said; what was open is cut.
func TestLiveChange(t *testing.T) {
	l := newLab(t)
	// The origin's answer to /slow never ends by itself.
	script := `until [ "$(curl -sS -o /dev/null -w '%{http_code}' --max-time 20 http://good.lab.test/)" = 200 ]; do sleep 0.2; done
echo reached
curl -sS --no-buffer http://good.lab.test/slow; echo "cut $?"
curl -sS -o /dev/null -w '%{http_code}\n' --max-time 20 http://good.lab.test/`
	done := make(chan result, 1)
	go func() { done <- l.inside(t, script, "--network", "limited") }()
	id := ""
	for id == "" {
		id = strings.TrimSpace(l.cove(t, "ps", "-q").stdout)
		if !l.waiting(t, done) {
			return
		}
	}
	for l.cove(t, "policy", "allow", id, "good.lab.test").code != 0 { // it may not have begun
		if !l.waiting(t, done) {
			return
		}
	}
	for !slices.Contains(l.seen(), "GET good.lab.test/slow") {
		if !l.waiting(t, done) {
			return
		}
	}
	if got := l.cove(t, "policy", "deny", id, "good.lab.test"); got.code != 0 {
		t.Errorf("deny: %+v", got)
	}
	got := <-done
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 3 || lines[0] != "reached" || !strings.HasPrefix(lines[1], "cut ") || lines[1] == "cut 0" || lines[2] != "403" {
		t.Errorf("%+v", got)
	}
	if got := l.cove(t, "audit", "--object", id); !strings.Contains(got.stdout, "deny good.lab.test") {
		t.Errorf("the record: %+v", got)
	}
}

// TestKeyless: a credential arrives where it is meant to, and is nowhere else: not in the sandbox, not at another host,
// not in what comes back, and not in anything that Cove writes.
func TestKeyless(t *testing.T) {
	l := newLab(t)
	got := l.inside(t, `echo "$LAB_TOKEN"
curl -sS -i --max-time 20 https://key.lab.test/mirror -H "Authorization: Bearer mine"
curl -sS --max-time 20 --compressed https://key.lab.test/mirror
curl -sS --max-time 20 https://good.lab.test/mirror -H "Authorization: Bearer $LAB_TOKEN"
curl -sS --max-time 20 http://key.lab.test/mirror -H "Authorization: Bearer $LAB_TOKEN"
env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; find / -xdev -type f -newer /etc/cove/ca.pem -size -1000k 2>/dev/null | xargs cat 2>/dev/null | grep -a canary`,
		"--allow", "key.lab.test", "--allow", "good.lab.test", "--credential", "lab")
	placeholder, _, _ := strings.Cut(got.stdout, "\n")
	if !strings.HasPrefix(placeholder, "lab_") || len(placeholder) != 36 {
		t.Errorf("the placeholder is %q", placeholder)
	}
	keys := l.keys()
	want := []string{"Bearer " + key, "Bearer " + key, "Bearer " + placeholder, "Bearer " + placeholder}
	if !slices.Equal(keys, want) {
		t.Errorf("arrived: %q, want %q", keys, want)
	}
	if strings.Contains(got.stdout+got.stderr, "canary") || strings.Count(got.stdout, "you sent") != 4 {
		t.Errorf("inside there is %+v", got)
	}
	found, n, err := holdings.Search("canary", filepath.Join(l.dir, "home"), filepath.Join(l.dir, "run"))
	if len(found) != 0 || err != nil || n == 0 {
		t.Errorf("the value is in %q of %d files, %v", found, n, err)
	}
	if got := l.inside(t, `echo "[$LAB_TOKEN]"; curl -sS --max-time 20 https://key.lab.test/mirror`, "--allow", "key.lab.test"); !strings.HasPrefix(got.stdout, "[]\nyou sent []") {
		t.Errorf("without the credential: %+v", got)
	}
	if got := l.inside(t, "true", "--allow", "key.lab.test", "--credential", "nobody"); got.code == 0 || !strings.Contains(got.stderr, "anthropic") {
		t.Errorf("a credential that is not there: %+v", got)
	}
}

// TestDeniedIsSaid: whoever runs a program hears what it could not reach, and how to let it.
func TestDeniedIsSaid(t *testing.T) {
	l := newLab(t)
	got := l.inside(t, `curl -s --max-time 20 https://bad.lab.test/ http://BAD.lab.test./ http://good.lab.test:8080/ http://1.2.3.4/
curl -s --noproxy '*' --max-time 20 http://worse.lab.test/; curl -s --max-time 20 http://169.254.169.254/; getent hosts $'e\e[31mvil.lab.test'`, "--allow", "good.lab.test")
	for _, place := range []string{"bad.lab.test", "good.lab.test:8080", "1.2.3.4", "worse.lab.test"} {
		if n := strings.Count(got.stderr, "policy denied "+place+" (allow it with --allow "+place+")"); n != 1 {
			t.Errorf("%s is named %d times", place, n)
		}
	}
	for _, not := range []string{"169.254", "vil", "--allow good.lab.test)"} {
		if strings.Contains(got.stderr, not) {
			t.Errorf("there is %q", not)
		}
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}
	got = l.inside(t, `exec 3<>/dev/tcp/good.lab.test/22 && echo SSH-2.0-x >&3; cat <&3`, "--allow", "good.lab.test:22")
	if !strings.Contains(got.stderr, "policy denied tcp://good.lab.test:22 (allow it with --allow tcp://good.lab.test:22)") {
		t.Errorf("another protocol: %+v", got)
	}
	got = l.inside(t, `curl -s --max-time 20 https://bad.lab.test/`, "--allow", "good.lab.test", "--json")
	if !strings.Contains(got.stdout, `"network_denied"`) || !strings.Contains(got.stdout, `"bad.lab.test"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestAuthorityIsShown: the certificate that a running execution trusts can be
// had from outside, and is the one that is inside.
func TestAuthorityIsShown(t *testing.T) {
	l := newLab(t)
	done := make(chan result, 1)
	go func() {
		done <- l.inside(t, `cat /etc/cove/ca.pem; until curl -sf -o /dev/null --max-time 20 http://good.lab.test/; do sleep 0.2; done`, "--network", "limited")
	}()
	id, exported := "", result{code: 1}
	for exported.code != 0 {
		if !l.waiting(t, done) {
			return
		}
		if id = strings.TrimSpace(l.cove(t, "ps", "-q").stdout); id != "" {
			exported = l.cove(t, "ca", "export", id)
		}
	}
	shown := l.cove(t, "ca", "show", id)
	if got := l.cove(t, "policy", "allow", id, "good.lab.test"); got.code != 0 {
		t.Errorf("allow: %+v", got)
	}
	if got := <-done; got.stdout != exported.stdout || strings.Contains(exported.stdout, "PRIVATE") {
		t.Errorf("inside %+v, exported %+v", got, exported)
	}
	if !strings.Contains(shown.stdout, "CN=sb_") || !strings.Contains(shown.stdout, "SHA-256") {
		t.Errorf("shown: %+v", shown)
	}
}

// TestNoisyOrigin: what an origin does wrong is not told to whoever runs a program, in the origin's words.
func TestNoisyOrigin(t *testing.T) {
	l := newLab(t)
	certificate, secret, err := l.KeyPair("good.lab.test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, secret)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := labs.Listen(netip.AddrPortFrom(labs.Web4, 9444))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			inside := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
			inside.Read(make([]byte, 4096))
			io.WriteString(inside, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswerNOISE NOISE")
			time.AfterFunc(time.Second, func() { c.Close() })
		}
	}()
	got := l.inside(t, `curl -sS --max-time 20 https://good.lab.test:9444/; sleep 0.2`, "--allow", "good.lab.test:9444")
	if got.stdout != "answer" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}
