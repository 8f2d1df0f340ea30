//go:build linux

package egress

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	labs "github.com/cove-sandbox/cove/test/adversary/lab"
)

// tinyproxy runs a company's proxy where Cove runs, which asks the lab for names
// and everybody for a password. It returns its port and what it logs.
func (l *lab) tinyproxy(t *testing.T) (port int, log func() string) {
	t.Helper()
	program, err := exec.LookPath("tinyproxy")
	if err != nil {
		t.Skip("tinyproxy is not installed")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = free.Addr().(*net.TCPAddr).Port
	free.Close()
	logFile := l.file(t, "tinyproxy.log", "")
	config := l.file(t, "tinyproxy.conf",
		fmt.Sprintf("Port %d\nListen 127.0.0.1\nTimeout 60\nLogFile %q\nLogLevel Connect\nMaxClients 20\nAllow "+
			"127.0.0.1\nBasicAuth cove pass-7d1f\n", port, logFile))
	names := l.file(t, "resolv.conf", fmt.Sprintf("nameserver %s\n", labs.Resolver))
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && exec "$2" -d -c "$3"`,
		"sh", names, program, config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	await.That(t, "tinyproxy serves", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return port, func() string { b, _ := os.ReadFile(logFile); return string(b) }
}

// TestUpstreamProxy: where the internet is behind a company's proxy, what is allowed goes through it, with its
// password, and what is not does not; when it does not do its part, that is said.
func TestUpstreamProxy(t *testing.T) {
	l := newLab(t)
	port, log := l.tinyproxy(t)
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.Read(make([]byte, 4096))
				io.WriteString(c, "220 mail.example.com ESMTP\r\n")
			}()
		}
	}()
	const script = `for u in https://good.lab.test/x http://good.lab.test/x; do curl -sS --max-time 30 -w ' %{http_code}\n' $u; done
curl -sS --noproxy '*' --max-time 30 -w ' %{http_code}\n' https://bad.lab.test/x https://10.9.9.9/x`
	for _, c := range []struct{ name, proxy, want string }{
		{"with a password", fmt.Sprintf("http://cove:pass-7d1f@127.0.0.1:%d", port), "200"},
		{"with another password", fmt.Sprintf("http://cove:pass-other@127.0.0.1:%d", port), "401 Unauthorized 502"},
		{"with none", fmt.Sprintf("http://127.0.0.1:%d", port), "407 Proxy Authentication Required 502"},
		{"not there", "http://127.0.0.1:1", "connection refused 502"},
		{"no proxy", "http://" + garbage.Addr().String(), "malformed HTTP 502"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.Forget()
			l.config = "  upstream_proxy: " + c.proxy + "\n"
			got := l.inside(t, script, "--allow", "good.lab.test")
			for word := range strings.FieldsSeq(c.want) {
				if strings.Count(got.stdout, word) < 2 {
					t.Errorf("twice %s is wanted: %+v", word, got)
				}
			}
			if c.want == "200" && strings.Join(l.seen(), " ") != "GET good.lab.test/x GET good.lab.test/x" {
				t.Errorf("arrived: %q", l.seen())
			}
			if c.want != "200" && len(l.seen()) > 0 {
				t.Errorf("arrived, past the proxy: %q", l.seen())
			}
			if strings.Contains(got.stdout+got.stderr, "pass-") {
				t.Errorf("the password is told: %+v", got)
			}
		})
	}
	if text := log(); !strings.Contains(text, "CONNECT good.lab.test:443") || strings.Contains(text, "bad.lab.test") || strings.Contains(text, "10.9.9.9") {
		t.Errorf("the proxy heard: %s", text)
	}
}
