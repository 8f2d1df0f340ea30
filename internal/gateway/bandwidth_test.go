package gateway

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestBandwidth: what a sandbox sends through a gateway's proxy keeps to the gateway's limit.
func TestBandwidth(t *testing.T) {
	const rate, sent, each = 32 << 10, 64 << 10, 4 << 10
	took := func(limit int64) time.Duration {
		t.Helper()
		g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Bandwidth: limit, Log: slog.New(slog.DiscardHandler)})
		defer g.Close()
		w, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Owner: cove.MachineOwner(),
			Policy: []*policy.Document{allow(t, "allowed.test")}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go w.proxy.ServeExplicit(l)
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		answers := bufio.NewReader(c)
		began := time.Now()
		for range sent / each {
			fmt.Fprintf(c, "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nX-Much: %s\r\n\r\n",
				strings.Repeat("x", each))
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusForbidden {
				t.Fatalf("the proxy answers %s, %v", answer.Status, err)
			}
		}
		return time.Since(began)
	}
	if limited := took(rate); limited < time.Second { // less what passes at once in the beginning
		t.Errorf("%d bytes at %d a second took %s", sent, rate, limited)
	}
	if free := took(0); free > time.Second {
		t.Errorf("without a limit it took %s", free)
	}
}
