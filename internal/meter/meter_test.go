package meter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"net/http/httptest"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

// shown returns the metrics in Prometheus's text form.
func shown(t *testing.T, m *Meter) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w,
		httptest.NewRequest("GET", "/", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMeter(t *testing.T) {
	m := New(Options{
		State: func() gateway.State {
			return gateway.State{Connections: 3, Holds: 2, Open: 5, HalfOpen: 1,
				Packages: cache.Counts{Served: 9, Added: 4, Mismatched: 2}}
		},
		Lost: func() int64 { return 7 },
	})
	request := decision.Decision{Entry: "transparent", Host: "a.example", Path: "/", Verdict: "allow", Stage: "upstream",
		Status: 204, Sent: 10, Received: 100, Duration: 0.02, Count: 1}
	failed, denied := request, request
	failed.Stage, failed.Status, failed.Count = "dial", 502, 2
	denied.Verdict, denied.Stage, denied.Host = "deny", "policy", "evil.example"
	tunnel := decision.Decision{Entry: "socks5", Host: "git.example", Verdict: "allow", Stage: "upstream",
		Sent: 1, Count: 1}
	for _, d := range []decision.Decision{request, failed, denied, tunnel,
		{Entry: "transparent", Host: "cached.example", Path: "/", Verdict: "allow", Stage: "packages", Status: 200, Count: 1},
		{Entry: "dns", Host: "a.example", Verdict: "allow", Stage: "upstream", Count: 1}} {
		m.Observe(d)
	}
	text := shown(t, m)
	for _, want := range []string{
		`sandbox_network_decisions_total{entry="transparent",stage="upstream",verdict="allow"} 1`,
		`sandbox_network_decisions_total{entry="transparent",stage="dial",verdict="allow"} 2`,
		`sandbox_network_decisions_total{entry="transparent",stage="policy",verdict="deny"} 1`,
		`sandbox_network_decisions_total{entry="dns",stage="upstream",verdict="allow"} 1`,
		`sandbox_network_upstream_total{host="a.example",status="2xx"} 1`,
		`sandbox_network_upstream_total{host="a.example",status="5xx"} 2`,
		`sandbox_network_upstream_total{host="git.example",status="none"} 1`,
		`sandbox_network_bytes_total{direction="sent"} 31`,
		`sandbox_network_bytes_total{direction="received"} 300`,
		`sandbox_network_request_duration_seconds_count 1`,
		`sandbox_network_connections 3`,
		`sandbox_network_holds 2`,
		`sandbox_network_circuits{state="open"} 5`,
		`sandbox_network_circuits{state="half_open"} 1`,
		`sandbox_network_lost_decisions_total 7`,
		`sandbox_network_decisions_total{entry="transparent",stage="packages",verdict="allow"} 1`,
		`sandbox_network_packages_total{result="served"} 9`,
		`sandbox_network_packages_total{result="added"} 4`,
		`sandbox_network_packages_total{result="mismatched"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "cached.example") {
		t.Error("what the cache answered has reached a host")
	}
	if strings.Contains(text, "evil.example") {
		t.Error("a host that was denied has a label")
	}
}

// TestHostsAreBounded: the registry stays small, whatever a sandbox reaches.
func TestHostsAreBounded(t *testing.T) {
	m := New(Options{State: func() gateway.State { return gateway.State{} }, Lost: func() int64 { return 0 }})
	for i := range 3 * maxHosts {
		for range 2 {
			m.Observe(decision.Decision{Host: fmt.Sprintf("h%d.example", i), Verdict: "allow", Status: 200, Count: 1})
		}
	}
	text := shown(t, m)
	if n := strings.Count(text, "sandbox_network_upstream_total{"); n != maxHosts+1 {
		t.Errorf("%d labels", n)
	}
	if want := fmt.Sprintf(`sandbox_network_upstream_total{host="other",status="2xx"} %d`,
		4*maxHosts); !strings.Contains(text, want) {
		t.Errorf("no %s", want)
	}
}
