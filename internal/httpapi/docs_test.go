package httpapi

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/cove-sandbox/cove/test/await"
)

// TestDocsPage: the page and all that it loads are served without a key and from here, and say nothing of the server;
// what it shows needs the key.
func TestDocsPage(t *testing.T) {
	h := start(t, withKeys)
	page := h.get("/docs")
	if page.StatusCode != http.StatusOK || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", page.StatusCode, page.body)
	}
	if r := h.get("/openapi.json"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the description without a key: %d", r.StatusCode)
	}
	policy := page.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "script-src 'self'", "style-src 'self'",
		"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q has no %q", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
		t.Errorf("the policy %q is loose", policy)
	}
	loads := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.body, -1)
	if len(loads) < 5 || strings.Contains(page.body, "<style") || strings.Contains(page.body, "<script>") {
		t.Errorf("the page has inline elements, or loads only %q", loads)
	}
	for _, l := range loads {
		if l[1] == "data:," || l[1] == "/openapi.json" {
			continue
		}
		if !strings.HasPrefix(l[1], "/docs/") {
			t.Errorf("the page loads %s", l[1])
		}
		packed, plain := h.get(l[1], "Accept-Encoding", "gzip"), h.get(l[1], "Accept-Encoding", "identity")
		text := packed.body
		if packed.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(unpacked)
			if err != nil {
				t.Fatal(err)
			}
			text = string(all)
		}
		if packed.StatusCode != http.StatusOK || plain.StatusCode != http.StatusOK || text != plain.body || text == "" {
			t.Errorf("%s: %d and %d, %d and %d bytes", l[1], packed.StatusCode, plain.StatusCode, len(text), len(plain.body))
		}
	}
	for _, missing := range []string{"/docs/page.html", "/docs/..%2fdocs.go", "/docs/swagger-ui.js.gz", "/docs/"} {
		if r := h.get(missing); r.StatusCode != http.StatusNotFound && r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", missing, r.StatusCode)
		}
	}
}

// TestDocsInABrowser: a real browser shows the page, takes the key in it, has the operations and sends a request with
// the key, without breaking the page's policy.
func TestDocsInABrowser(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no Chromium on this machine")
	}
	h := start(t, withKeys)
	b := browse(t, program, h.url+"/docs")
	b.until(t, "the page asks for a key", `!document.getElementById("key").hidden`)
	b.run(t, `field.value = "cove_wrong"; key.requestSubmit()`)
	b.until(t, "a wrong key is refused", `note.value.includes("not a key")`)
	b.run(t, `field.value = "cove_right"; key.requestSubmit()`)
	b.until(t, "the operations are shown", `document.querySelectorAll(".opblock").length > 50`)
	b.run(t, `document.querySelector("#operations-server-list-runtimes .opblock-summary-control").click()`)
	b.until(t, "an operation opens", `document.querySelector("#operations-server-list-runtimes .execute") != null`)
	b.run(t, `document.querySelector("#operations-server-list-runtimes .execute").click()`)
	b.until(t, "the answer is that for a key",
		`[...document.querySelectorAll("#operations-server-list-runtimes .live-responses-table")]
			.some(e => e.innerText.includes("python"))`)
	b.until(t, "the sample has the key",
		`document.querySelector("#operations-server-list-runtimes .curl").innerText.includes("X-API-Key: cove_right")`)
	if broken := b.run(t, `window.broken || ""`); broken != "" {
		t.Errorf("the policy was broken: %v", broken)
	}
	if elsewhere := b.run(t, `performance.getEntriesByType("resource").map(e => e.name)
		.filter(n => !n.startsWith(location.origin) && !n.startsWith("data:")).join(" ")`); elsewhere != "" {
		t.Errorf("the page has asked %v", elsewhere)
	}
}

// browser is a page in a real browser, asked over its debugging protocol.
type browser struct {
	conn    *websocket.Conn
	session string
	next    int
}

func browse(t *testing.T, program, url string) *browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	c := exec.CommandContext(ctx, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), "about:blank")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Wait(); cancel() })
	lines := bufio.NewScanner(stderr)
	address := ""
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "DevTools listening on ")
	}
	if address == "" {
		t.Skip("Chromium does not start here")
	}
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		io.Copy(io.Discard, stderr)
	}()
	b := &browser{}
	if b.conn, _, err = websocket.Dial(ctx, address, nil); err != nil {
		t.Fatal(err)
	}
	b.conn.SetReadLimit(16 << 20)
	t.Cleanup(func() { // with all its processes, which write into its directory
		wsjson.Write(ctx, b.conn, map[string]any{"id": 0, "method": "Browser.close"})
		<-quiet
		b.conn.CloseNow()
	})
	var made struct{ TargetID string }
	b.ask(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	var attached struct{ SessionID string }
	b.ask(t, "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.ask(t, "Page.enable", map[string]any{}, nil)
	b.ask(t, "Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `addEventListener("securitypolicyviolation",
		e => { window.broken = (window.broken || "") + e.violatedDirective + " " + e.blockedURI + " "; })`}, nil)
	b.ask(t, "Page.navigate", map[string]any{"url": url}, nil)
	return b
}

// ask calls a method, and decodes its result into result unless that is nil.
func (b *browser) ask(t *testing.T, method string, params map[string]any, result any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b.next++
	call := map[string]any{"id": b.next, "method": method, "params": params}
	if b.session != "" {
		call["sessionId"] = b.session
	}
	if err := wsjson.Write(ctx, b.conn, call); err != nil {
		t.Fatal(err)
	}
	for {
		var m struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := wsjson.Read(ctx, b.conn, &m); err != nil {
			t.Fatal(err)
		}
		if m.ID != b.next {
			continue // an event
		}
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
}

// run evaluates a script in the page, and returns its value.
func (b *browser) run(t *testing.T, script string) any {
	t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.ask(t, "Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s", r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value
}

// until waits until a script is true in the page.
func (b *browser) until(t *testing.T, what, script string) {
	t.Helper()
	await.That(t, what, func() bool { return b.run(t, script) == true })
}
