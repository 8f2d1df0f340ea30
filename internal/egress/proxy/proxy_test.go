package proxy

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func host(s string) policy.Host {
	h, err := policy.ParseHost(s)
	if err != nil {
		panic(err)
	}
	return h
}

// TestWaysIn: every entry leads to the same origin under the same policy, over each version of HTTP.
func TestWaysIn(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	l.serve("denied.lab", "203.0.113.2", nil)
	l.pinned[netip.MustParseAddr("203.0.113.1")] = host("allowed.lab")

	ways := map[string]func(port string) *http.Client{
		"explicit":    func(string) *http.Client { return l.client() },
		"transparent": func(port string) *http.Client { return l.client(to(l.transparent("203.0.113.1:" + port))) },
	}
	_ = ways
	for _, scheme := range []string{"https", "http"} {
		port := map[string]string{"https": "443", "http": "80"}[scheme]
		for way, client := range ways {
			t.Run(scheme+" "+way, func(t *testing.T) {
				before := len(o.seen())
				c := client(port)
				res, body := get(t, c, scheme+"://allowed.lab/a/b?c=d%20e&f")
				if want := "GET " + scheme + "://allowed.lab/a/b?c=d%20e&f \"\""; res.StatusCode != 200 || body != want {
					t.Errorf("%s %q, want %q", res.Status, body, want)
				}
				if n := len(o.seen()); n != before+1 {
					t.Errorf("the origin saw %d requests", n-before)
				}
			})
		}
	}
}

func TestBlocked(t *testing.T) {
	l := newLab(t)
	denied := l.serve("denied.lab", "203.0.113.2", nil)
	c := l.client(to(l.transparent("203.0.113.2:443")))
	res, body := get(t, c, "https://denied.lab/")
	var told map[string]any
	if err := json.Unmarshal([]byte(body), &told); err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	if e, _ := told["error"].(map[string]any); e["type"] != "blocked" || e["message"] != told["message"] ||
		!strings.Contains(fmt.Sprint(e["message"]), "no rule allows denied.lab") ||
		!strings.Contains(fmt.Sprint(e["message"]), "cove policy allow") {
		t.Errorf("the error is %v", told["error"])
	}
	delete(told, "error")
	delete(told, "message")
	want := map[string]any{"host": "denied.lab", "port": 443.0, "rule": "default", "reason": "no rule allows denied.lab",
		"allow": "cove policy allow sb_test denied.lab", "stage": "policy"}
	for k, v := range want {
		if told[k] != v {
			t.Errorf("%s is %v, want %v", k, told[k], v)
		}
	}
	if res.StatusCode != 403 || len(told) != len(want) {
		t.Errorf("%s %v", res.Status, told)
	}
	if len(denied.seen())+len(l.dials()) > 0 {
		t.Error("somebody was dialled")
	}
	if !strings.Contains(l.event(func(e Event) bool { return e.Status == 403 }).Verdict.Reason, "no rule") {
		t.Error("it was not recorded why")
	}
}
