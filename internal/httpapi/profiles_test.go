package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

var careful = api.Profile{
	Name: "careful", Spec: api.Spec{Engine: "native", Limits: &api.Limits{MemoryMB: 64},
		Env: map[string]string{"A": "hidden"}}, Instructions: "hidden",
	Network: &api.ProfileNetwork{Allow: []string{"a.example"}, Credentials: []string{"hidden"}},
}

func TestProfiles(t *testing.T) {
	h := start(t, func(o *Options) {
		o.Profiles = func() ([]api.Profile, error) {
			return []api.Profile{careful, {Name: "plain", Spec: api.Spec{Limits: &api.Limits{MemoryMB: 64}}},
				{Name: "bare", Mode: "none"}}, nil
		}
	})
	t.Run("the owner sees all of them", func(t *testing.T) {
		all := decode[api.ProfileList](t, h.do(h.owner, "GET", "/profiles", ""), http.StatusOK).Profiles
		if len(all) != 3 || all[0].Env["A"] != "hidden" || all[0].Network == nil {
			t.Errorf("%+v", all)
		}
		if p := decode[api.Profile](t, h.do(h.owner, "GET", "/profiles/careful", ""),
			http.StatusOK); p.Limits.MemoryMB != 64 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("others do not see what may be nobody's business", func(t *testing.T) {
		for _, path := range []string{"/profiles", "/profiles/careful"} {
			if r := h.get(path); r.StatusCode != http.StatusOK || strings.Contains(r.body, "hidden") ||
				!strings.Contains(r.body, "careful") {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
		}
	})
	t.Run("none", func(t *testing.T) {
		if r := h.get("/profiles/other"); r.StatusCode != http.StatusNotFound ||
			!strings.Contains(r.error(t).Hint, "careful") {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	})
	t.Run("of a sandbox", func(t *testing.T) {
		h.do(h.owner, "POST", "/sandboxes", `{"name":"one","profile":"careful","limits":{"cpus":1}}`)
		r := h.lasting.asked()
		if r.Profile != "careful" || r.Engine != "native" || r.Limits != (cove.Limits{Memory: 64 << 20, CPUs: 1}) ||
			r.Network == nil || r.Network.Credentials[0] != "hidden" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("of an execution", func(t *testing.T) {
		h.do(h.owner, "POST", "/execute", `{"language":"python","code":"1","profile":"plain"}`)
		if r := h.fake.request(); r.Limits.Memory != 64<<20 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("gives nobody what is the owner's", func(t *testing.T) {
		for path, body := range map[string]string{"/execute": `{"language":"python","code":"1","profile":"careful"}`,
			"/sandboxes": `{"profile":"careful"}`} {
			if r := h.post(path, body); r.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
		}
	})
	t.Run("without sandboxes", func(t *testing.T) {
		for path, body := range map[string]string{"/execute": `{"language":"python","code":"1","profile":"bare"}`,
			"/sandboxes": `{"profile":"bare"}`} {
			if r := h.do(h.owner, "POST", path, body); r.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
		}
	})
}

func TestProfilesThatCannotBeRead(t *testing.T) {
	h := start(t, func(o *Options) {
		o.Profiles = func() ([]api.Profile, error) {
			return nil, cove.Errorf(cove.InvalidArgument, "profiles.yaml: line 3: what is wrong")
		}
	})
	for _, r := range []reply{h.do(h.owner, "GET", "/profiles", ""),
		h.do(h.owner, "POST", "/sandboxes", `{"profile":"p"}`)} {
		if r.StatusCode != http.StatusBadRequest || !strings.Contains(r.body, "line 3") {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
	if r := h.do(h.owner, "POST", "/sandboxes", `{"name":"one"}`); strings.Contains(r.body, "line 3") {
		t.Errorf("who names no profile is told of them: %s", r.body)
	}
}
