package forge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestOpen: the request is the documented one, and any answer of the server is reported.
func TestOpen(t *testing.T) {
	var status int
	var answer string
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p map[string]any
		json.NewDecoder(r.Body).Decode(&p)
		got = append(got, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Accept"), " ", p))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	for _, c := range []struct {
		status int
		answer string
		code   cove.Code
		says   string
	}{
		{201, `{"number":7,"html_url":"https://github.example/o/r/pull/7","x":1}`, "", ""},
		{201, `{"number":7,"html_url":"javascript:1"}`, cove.Unavailable, "does not say"},
		{201, `{"number":7,"html_url":"https://x\u001b[2J"}`, cove.Unavailable, "does not say"},
		{422, `{"message":"Validation Failed","errors":[{"message":"A pull request already exists for o:b."}]}`,
			cove.Conflict, "Validation Failed: A pull request already exists for o:b."},
		{422, `{"message":"Validation Failed","errors":["text"]}`, cove.Conflict, ""},
		{401, `{"message":"Bad credentials"}`, cove.Forbidden, "Bad credentials"},
		{403, "blocked by \x1b[2Jthe gateway\nmore", cove.Forbidden, "blocked by [2Jthe gateway"},
		{404, ``, cove.Forbidden, "Not Found"},
		{301, ``, cove.Conflict, "another name"},
		{500, strings.Repeat("é", 1000), cove.Unavailable, "é"},
	} {
		status, answer = c.status, c.answer
		opened, err := Open(t.Context(), s.Client(), s.URL+"/repos/o/r/pulls",
			Pull{Title: "t", Head: "b", Base: "main", Draft: true})
		if cove.ErrorCode(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %.50s: %v", c.status, c.answer, err)
		}
		if err == nil && opened != (Opened{7, "https://github.example/o/r/pull/7"}) {
			t.Errorf("%+v", opened)
		}
	}
	for _, g := range got {
		if want := "POST /repos/o/r/pulls application/vnd.github+json map[base:main draft:true head:b title:t]"; g != want {
			t.Errorf("asked %s, want %s", g, want)
		}
	}
}

func FuzzReason(f *testing.F) {
	f.Add([]byte(`{"message":"m","errors":[{"message":"e"}]}`))
	f.Add([]byte("text\nmore"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if s := reason(answer); strings.ContainsAny(s, "\x1b\n\r") || len(s) > 500 {
			t.Errorf("%q", s)
		}
	})
}
