package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// ensured asks for a sandbox by name, whether it exists or not, and returns it as the answer has it.
func (e *estate) ensured(t *testing.T, who, name string) api.Sandbox {
	t.Helper()
	code, text := e.ask(t, who, "POST", "/sandboxes", fmt.Sprintf(`{"name":%q,"if_exists":"return"}`, name))
	_, last, ok := strings.Cut(text, "event: created\ndata: ")
	if code != http.StatusOK || !ok {
		t.Errorf("ensure %s: %d %s", name, code, text)
		return api.Sandbox{}
	}
	return decode[api.Sandbox](t, reply{&http.Response{StatusCode: code}, strings.TrimSpace(last)}, http.StatusOK)
}

// TestEnsureSandbox: one call has a sandbox of a name, and has it run, whatever there was before.
func TestEnsureSandbox(t *testing.T) {
	e := newEstate(t)
	var asking sync.WaitGroup
	ids := make([]string, 10)
	for i := range ids {
		asking.Go(func() { ids[i] = e.ensured(t, keeper, "dev").ID })
	}
	asking.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("concurrent callers have %q", ids)
		}
	}
	for _, action := range []string{"stop", "pause"} {
		if code, text := e.ask(t, keeper, "POST", "/sandboxes/dev/"+action, ""); code != http.StatusOK {
			t.Fatalf("%s: %d %s", action, code, text)
		}
		for range 10 {
			asking.Go(func() {
				if s := e.ensured(t, keeper, "dev"); s.ID != ids[0] || s.State != string(cove.StateRunning) {
					t.Errorf("after %s it is %s, %s", action, s.ID, s.State)
				}
			})
		}
		asking.Wait()
	}
	if s := e.ensured(t, stranger, "dev"); s.ID == ids[0] {
		t.Error("another caller has the keeper's sandbox")
	}
	for body, want := range map[string]int{
		`{"name":"dev"}`:                                                http.StatusConflict,
		`{"name":"dev","if_exists":"error"}`:                            http.StatusConflict,
		`{"if_exists":"return"}`:                                        http.StatusBadRequest,
		`{"name":"dev","if_exists":"replace"}`:                          http.StatusBadRequest,
		`{"name":"dev","if_exists":"return","limits":{"memory_mb":-1}}`: http.StatusBadRequest,
		`{"name":"dev","if_exists":"return","bind":"/x"}`:               http.StatusForbidden,
	} {
		if code, text := e.ask(t, keeper, "POST", "/sandboxes", body); code != want {
			t.Errorf("%s: %d, want %d: %s", body, code, want, text)
		}
	}
	code, text := e.ask(t, keeper, "POST", "/runs",
		`{"agent":"robot","prompt":"x","new":{"name":"dev","if_exists":"return"}}`)
	if code != http.StatusBadRequest {
		t.Errorf("a run in a sandbox that may exist: %d %s", code, text)
	}
	if all := get[api.SandboxList](t, e, keeper, "/sandboxes").Sandboxes; len(all) != 1 {
		t.Errorf("the keeper has %d sandboxes", len(all))
	}
}

// TestDeleteAgain: what a caller has ended can be ended again, at once or later; what is another's, or never was, is
// not found.
func TestDeleteAgain(t *testing.T) {
	e := newEstate(t)
	id := e.ensured(t, keeper, "dev").ID
	ended := e.begin(t, keeper)
	var asking sync.WaitGroup
	for _, path := range []string{"/sandboxes/" + id, "/executions/" + ended} {
		for range 4 {
			asking.Go(func() {
				if code, text := e.ask(t, keeper, "DELETE", path, ""); code != http.StatusNoContent && code != http.StatusOK {
					t.Errorf("DELETE %s: %d %s", path, code, text)
				}
			})
		}
	}
	asking.Wait()
	for _, c := range []struct {
		who, path string
		want      int
	}{
		{keeper, "/sandboxes/" + id, http.StatusNoContent},
		{machine, "/sandboxes/" + id, http.StatusNoContent},
		{stranger, "/sandboxes/" + id, http.StatusNotFound},
		{keeper, "/sandboxes/dev", http.StatusNotFound}, // the next one of that name is another
		{keeper, "/sandboxes/" + string(cove.NewSandboxID()), http.StatusNotFound},
		{keeper, "/executions/" + ended, http.StatusOK},
		{stranger, "/executions/" + ended, http.StatusNotFound},
		{keeper, "/executions/" + string(cove.NewExecutionID()), http.StatusNotFound},
	} {
		code, text := e.ask(t, c.who, "DELETE", c.path, "")
		if code != c.want {
			t.Errorf("DELETE %s by %q: %d, want %d: %s", c.path, c.who, code, c.want, text)
		}
		if code == http.StatusOK {
			x := decode[api.Execution](t, reply{&http.Response{StatusCode: code}, text}, code)
			if x.Status != api.StatusKilled || x.ExitCode != -1 {
				t.Errorf("it ended with %s, %d", x.Status, x.ExitCode)
			}
		}
	}
}
