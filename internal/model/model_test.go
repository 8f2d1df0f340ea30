package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/eventstream"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// client returns a client of a server, and the delays it would have waited.
func client(t testing.TB, dialect Dialect, server string) (*Client, *[]time.Duration) {
	t.Helper()
	base, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var waited []time.Duration
	return &Client{HTTP: NewHTTP(nil), Dialect: dialect, Base: base, Header: http.Header{"Authorization": {"Bearer k"}},
		Log:  slog.New(slog.DiscardHandler),
		Wait: func(_ context.Context, d time.Duration) error { waited = append(waited, d); return nil }}, &waited
}

func question(text string) Request {
	return Request{Model: "m", System: "Be brief.",
		Messages: []Message{{Role: User, Parts: []Part{{Kind: Text, Text: text}}}},
		Tools: []Tool{{Name: "bash", Description: "Runs a command.",
			Input: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}}}
}

func scripted(t testing.TB, script string) (*modeltest.Server, string) {
	t.Helper()
	parsed, err := modeltest.Parse("test.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	s := modeltest.New(modeltest.Options{Script: parsed})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL + "/v1"
}

// TestTries covers the number of tries and their delays.
func TestTries(t *testing.T) {
	for _, dialect := range Dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s, at := scripted(t,
				`prompts: [{when: twice, turns: [{say: yes, fail: [{status: 429, retry_after: 100}, {status: 503}]}]},
				{when: never, turns: [{say: yes, fail: [{cut: true}, {cut: true}, {cut: true}, {cut: true}, {cut: true}, {cut: true}, {cut: true}, {cut: true}, {cut: true}]}]},
				{when: wrong, turns: [{say: yes, fail: [{status: 400, message: no such model}]}]}]`)
			c, waited := client(t, dialect, at)
			a, err := c.Ask(t.Context(), question("twice"))
			if err != nil || a.Message.Texts(Text) != "yes" || a.Stop != Done {
				t.Errorf("%+v, %v", a, err)
			}
			if w := *waited; len(w) != 2 || w[0] != 100*time.Second || w[1] < firstDelay || w[1] > 2*firstDelay {
				t.Errorf("waited %v", w)
			}
			*waited = nil
			s.Forget()
			if _, err := c.Ask(t.Context(), question("never")); cove.ErrorCode(err) != cove.ModelUnreachable ||
				!strings.Contains(err.Error(), "(tried 8 times)") || len(s.Requests()) != maxTries {
				t.Errorf("%v after %d requests", err, len(s.Requests()))
			}
			if w := *waited; len(w) != maxTries-1 || w[6] < maxDelay/2 || w[6] > maxDelay {
				t.Errorf("waited %v", w)
			}
			*waited = nil
			if _, err := c.Ask(t.Context(), question("wrong")); cove.ErrorCode(err) != cove.ModelUnreachable ||
				!strings.Contains(err.Error(), "no such model") || len(*waited) != 0 {
				t.Errorf("%v after %v", err, *waited)
			}
		})
	}
}

// TestEndsEarly: a stream that ends cleanly before the answer is complete.
func TestEndsEarly(t *testing.T) {
	for _, dialect := range Dialects {
		whole := streams[dialect][0]
		asked := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if asked++; asked == 1 {
				io.WriteString(w, whole[:strings.Index(whole, "\n\n")+2])
				return
			}
			io.WriteString(w, whole)
		}))
		defer s.Close()
		c, waited := client(t, dialect, s.URL)
		if a, err := c.Ask(t.Context(), question("x")); err != nil || a.Message.Texts(Text) != "I look" || len(*waited) != 1 {
			t.Errorf("%s: %+v, %v after %v", dialect, a, err, *waited)
		}
	}
}

// TestUnreachable: no server, or none with a valid certificate.
func TestUnreachable(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c, waited := client(t, Chat, gone.URL)
	if _, err := c.Ask(t.Context(), question("x")); cove.ErrorCode(err) != cove.ModelUnreachable ||
		!strings.Contains(err.Error(), "cannot be reached") || !strings.Contains(err.Error(), "connection refused") ||
		len(*waited) != maxTries-1 {
		t.Errorf("%v after %v", err, *waited)
	}
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	defer untrusted.Close()
	c, waited = client(t, Chat, untrusted.URL)
	if _, err := c.Ask(t.Context(), question("x")); cove.ErrorCode(err) != cove.ModelUnreachable ||
		!strings.Contains(err.Error(), "SSL_CERT_FILE") || len(*waited) != 0 {
		t.Errorf("%v after %v", err, *waited)
	}
}

func TestCanceled(t *testing.T) {
	_, at := scripted(t, `prompts: [{turns: [{say: many words that take their time, pace: 10s}]}]`)
	for _, dialect := range Dialects {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		c, _ := client(t, dialect, at)
		if _, err := c.Ask(ctx, question("x")); cove.ErrorCode(err) != cove.Canceled {
			t.Errorf("%v", err)
		}
		c.Wait = Pause
		c.Base.Host = "127.0.0.1:1"
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := c.Ask(ctx, question("x")); cove.ErrorCode(err) != cove.Canceled {
			t.Errorf("%v", err)
		}
	}
}

// TestEndless: an endless answer fails.
func TestEndless(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		words := []byte("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"\",\"content\":\"\"}}],\"padding\":\"" +
			strings.Repeat("x", 1<<20) + "\"}\n\n")
		for {
			if _, err := w.Write(words); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	c, waited := client(t, Chat, s.URL)
	if _, err := c.Ask(t.Context(), question("x")); cove.ErrorCode(err) != cove.ModelUnreachable ||
		!strings.Contains(err.Error(), "longer than 64 MiB") || len(*waited) != 0 {
		t.Errorf("%v after %v", err, *waited)
	}
}

func TestAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for said, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0.5": time.Second / 2, "-3": 0, "soon": 0, "1e300": 0, "NaN": 0,
		"Sat, 21 Nov 2026 12:00:30 GMT": 30 * time.Second, "Sat, 21 Nov 2026 11:00:30 GMT": 0,
	} {
		if got := after(http.Header{"Retry-After": {said}}, now); got != want {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
	if got := after(http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"9"}}, now); got != 250*time.Millisecond {
		t.Error(got)
	}
}

func TestURL(t *testing.T) {
	for base, want := range map[string]string{
		"https://api.anthropic.com":          "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com/v1/":      "https://api.anthropic.com/v1/messages",
		"http://gateway.cove.internal/proxy": "http://gateway.cove.internal/proxy/v1/messages",
	} {
		u, _ := url.Parse(base)
		if got := (&Client{Base: u}).url(codecs[Anthropic].path); got != want {
			t.Errorf("%s: %s", base, got)
		}
	}
}

// decode decodes the events of a stream as a client does.
func decode(dialect Dialect, stream string) (Answer, bool, error) {
	d := codecs[dialect].decoder(func(string) {})
	events := eventstream.NewReader(strings.NewReader(stream), maxEvent)
	for {
		e, err := events.Next()
		if err != nil {
			a, ended := d.answer()
			return a, ended, nil
		}
		if err := d.event([]byte(e.Data)); err != nil {
			return Answer{}, false, err
		}
	}
}

// streams are answers as documented by the providers.
var streams = map[Dialect][]string{
	Anthropic: {
		`data: {"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"ZGF0YQ=="}}

data: {"type":"ping"}

data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look"}}

data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"tu_1","name":"bash","input":{}}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}

data: {"type":"message_stop"}

`,
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"No."}}

data: {"type":"message_delta","delta":{"stop_reason":"refusal"}}

data: {"type":"message_stop"}

`,
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"tu_1","name":"write","input":{}}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"content\":\"abc"}}

data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"}}

data: {"type":"message_stop"}

`,
		"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
		"data: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 1 > " +
			"0\"}}\n\n",
	},
	Chat: {
		`data: {"model":"gpt-x","choices":[{"delta":{"role":"assistant","content":"","reasoning_content":"hm"}}]}

data: {"choices":[{"delta":{"content":"I look"}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"bash","arguments":""}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":\"ls\"}"}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"bash","arguments":"{}"}}]}}]}

data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":32,"completion_tokens":15,"prompt_tokens_details":{"cached_tokens":7}}}

data: [DONE]

`,
		// Calls with equal indexes, as some endpoints send them, and without ids.
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\"," +
			"\"arguments\":\"{}\"}},{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"y\",\"arguments\":\"{}\"}}]}," +
			"\"finish_reason\":\"stop\"}]}\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"x\"}},{\"index\":1," +
			"\"function\":{\"name\":\"y\",\"arguments\":\"{\\\"a\"}}]},\"finish_reason\":\"length\"}]}\n\n",
		"data: {\"error\":{\"message\":\"upstream\",\"code\":502}}\n\n",
		"data: {\"choices\":[{\"delta\":{\"refusal\":\"No.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
	},
	Responses: {
		`data: {"type":"response.created","response":{"model":"gpt-x"}}

data: {"type":"response.output_item.done","item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}}

data: {"type":"response.output_text.delta","delta":"I"}

data: {"type":"response.output_item.done","item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"}]}}

data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"c1","name":"bash","arguments":"{\"command\":\"ls\"}"}}

data: {"type":"response.completed","response":{"model":"gpt-x","usage":{"input_tokens":32,"output_tokens":15,"input_tokens_details":{"cached_tokens":7}}}}

`,
		"data: {\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":\"max_output_tokens\"}," +
			"\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"abc\"}]}]}}\n\n",
		"data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"sorry\"}}}\n\n",
		"data: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\"}\n\n",
		"data: {\"type\":\"response.output_item.done\",\"item\":3}\n\n",
	},
}

func TestDecode(t *testing.T) {
	for dialect, calls := range map[Dialect]int{Anthropic: 1, Chat: 2, Responses: 1} {
		t.Run(string(dialect), func(t *testing.T) {
			whole := streams[dialect][0]
			a, ended, err := decode(dialect, whole)
			if err != nil || !ended || a.Stop != Called || a.Message.Texts(Text) != "I look" ||
				a.Message.Texts(Reasoning) != "hm" && a.Message.Texts(Reasoning) != "hm\n" {
				t.Fatalf("%+v %v %v", a, ended, err)
			}
			if u := a.Usage; u.InputTokens != 25 || u.OutputTokens != 15 || u.CacheReadTokens != 7 ||
				!strings.HasSuffix(a.Model, "-x") {
				t.Errorf("%+v of %s", u, a.Model)
			}
			if c := a.Message.Calls(); len(c) != calls || c[0].Tool != "bash" || string(c[0].Input) != `{"command":"ls"}` ||
				c[0].ID == "" || c[0].Cut {
				t.Errorf("%+v", c)
			}
			// Truncated anywhere, it is incomplete, except after its end.
			for i := range whole {
				if _, ended, err := decode(dialect, whole[:i]); ended && !strings.Contains(whole[:i], "finish_reason") &&
					i < len(whole)-2 {
					t.Errorf("cut at %d of %d, it is an answer: %v", i, len(whole), err)
				}
			}
			// The request repeats the received answer.
			back, err := json.Marshal(codecs[dialect].encode(Request{
				Messages: []Message{{Role: User, Parts: []Part{{Kind: Text, Text: "x"}}}, a.Message},
			}))
			if err != nil {
				t.Fatal(err)
			}
			want := map[Dialect][]string{
				Anthropic: {`{"data":"","signature":"c2ln"`, `{"data":"ZGF0YQ==","type":"redacted_thinking"}`, `"id":"tu_1"`},
				Responses: {`"encrypted_content":"x"`, `"call_id":"c1"`}, Chat: {`"id":"c1"`, `"id":"c2"`},
			}[dialect]
			for _, words := range want {
				if words = strings.Replace(words, `{"data":"","signature"`, `"signature"`, 1); !bytes.Contains(back,
					[]byte(words)) {
					t.Errorf("%s is not in %s", words, back)
				}
			}
		})
	}
	for _, c := range []struct {
		name    string
		dialect Dialect
		i       int
		stop    Stop
		cut     []bool
		text    string
	}{
		{"refused", Anthropic, 1, Refused, nil, "No."},
		{"cut call", Anthropic, 2, Cut, []bool{true}, ""},
		{"one number", Chat, 1, Called, []bool{false, false}, ""},
		{"no ids", Chat, 2, Cut, []bool{false, true}, ""},
		{"refusal", Chat, 4, Refused, nil, "No."},
		{"incomplete", Responses, 1, Cut, nil, "abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, ended, err := decode(c.dialect, streams[c.dialect][c.i])
			var cut []bool
			ids := map[string]bool{}
			for _, call := range a.Message.Calls() {
				cut = append(cut, call.Cut)
				ids[call.ID] = true
			}
			if err != nil || !ended || a.Stop != c.stop || !slices.Equal(cut, c.cut) || a.Message.Texts(Text) != c.text ||
				len(ids) != len(cut) || ids[""] {
				t.Errorf("%+v %v %v", a, ended, err)
			}
		})
	}
	for _, c := range []struct {
		name    string
		dialect Dialect
		i       int
		again   bool
		code    cove.Code
	}{
		{"overloaded", Anthropic, 3, true, cove.ModelUnreachable},
		{"too long", Anthropic, 4, false, cove.TooLarge},
		{"upstream", Chat, 3, true, cove.ModelUnreachable},
		{"failed", Responses, 2, true, cove.ModelUnreachable},
		{"error", Responses, 3, true, cove.ModelUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := decode(c.dialect, streams[c.dialect][c.i])
			var f *Failure
			if !errors.As(err, &f) || f.again != c.again || f.err.Code != c.code {
				t.Errorf("%v", err)
			}
		})
	}
	if _, _, err := decode(Responses, streams[Responses][4]); err == nil {
		t.Error("an item that is none is taken")
	}
}

// TestEncodeNothing: an empty answer, or one of another API, is encoded in a form that the API accepts.
func TestEncodeNothing(t *testing.T) {
	said, err := json.Marshal(encodeAnthropic(Request{Messages: []Message{
		{Role: User, Parts: []Part{{Kind: Text, Text: "x"}, {Kind: Text, Text: " \n"}}},
		{Role: Assistant, Parts: []Part{{Kind: Text}, {Kind: Reasoning, Text: "hm",
			Opaque: json.RawMessage(`{"type":"reasoning"}`), Dialect: Responses}}},
		{Role: User, Parts: []Part{{Kind: Text, Text: "y"}}},
	}}))
	want := `"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant",` +
		`"content":[{"type":"text","text":"(nothing)"}]},` +
		`{"role":"user","content":[{"type":"text","text":"y","cache_control":{"type":"ephemeral"}}]}]`
	if err != nil || !strings.Contains(string(said), want) {
		t.Errorf("%s, %v", said, err)
	}
}

// fuzz tests a decoder: any decoded answer can be encoded again.
func fuzz(f *testing.F, dialect Dialect) {
	for _, s := range streams[dialect] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		a, _, err := decode(dialect, stream)
		if err != nil {
			return
		}
		for _, c := range a.Message.Calls() {
			var o map[string]json.RawMessage
			if json.Unmarshal(c.Input, &o) != nil || o == nil {
				t.Fatalf("the input of a call is %q", c.Input)
			}
		}
		for _, to := range Dialects {
			if _, err := json.Marshal(codecs[to].encode(Request{Messages: []Message{a.Message}})); err != nil {
				t.Fatalf("%s: %v", to, err)
			}
		}
	})
}

func FuzzAnthropic(f *testing.F) { fuzz(f, Anthropic) }
func FuzzChat(f *testing.F)      { fuzz(f, Chat) }
func FuzzResponses(f *testing.F) { fuzz(f, Responses) }

func FuzzJudge(f *testing.F) {
	f.Add(403, []byte(`{"error":{"type":"blocked"},"host":"h","port":443,"reason":"r","allow":"cove policy allow x h"}`),
		"3")
	f.Add(429, []byte(`{"error":"slow down"}`), "Sat, 21 Nov 2026 12:00:30 GMT")
	f.Add(500, []byte(`<html>`), "")
	f.Fuzz(func(t *testing.T, status int, body []byte, said string) {
		got := judge(status, http.Header{"Retry-After": {said}}, body, "h")
		err := got.final(3)
		if got.delay(3) < 0 || err == nil || cove.ErrorCode(err) == cove.Internal || len(err.Error()) > 4000+len(body) {
			t.Errorf("%+v: %v", got, err)
		}
	})
}

// TestProxySays: a proxy's refusal of a tunnel is reported.
func TestProxySays(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w,
			`{"error":{"type":"blocked"},"host":"api.lab","port":443,"reason":"no rule allows api.lab","allow":"cove policy `+
				`allow sb_1 api.lab"}`)
	}))
	defer proxy.Close()
	c, waited := client(t, Anthropic, "https://api.lab")
	at, _ := url.Parse(proxy.URL)
	c.HTTP.Transport.(*http.Transport).Proxy = http.ProxyURL(at)
	if _, err := c.Ask(t.Context(), question("x")); cove.ErrorCode(err) != cove.ModelUnreachable ||
		cove.ErrorHint(err) != "to allow it: cove policy allow sb_1 api.lab" || len(*waited) != 0 {
		t.Errorf("%v after %v", err, *waited)
	}
}
