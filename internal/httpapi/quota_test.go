package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/test/await"
)

// few is a key of the estate that may have few things.
const few = "cove_few"

var grantOfFew = access.Grant{Scopes: access.Usual, Sandboxes: 2, Disk: 3 << 30,
	CPUDay: 10 * time.Second, Concurrent: 1}

// rich is a key of the estate that may use models.
const rich = "cove_rich"

var grantOfRich = access.Grant{Scopes: access.Usual, Models: cove.Budget{Requests: 5, Cost: 2}}

// TestKeys: the machine's owner sees what each key may do and has used of its model budget, and a key sees that of
// itself alone, whatever its scopes are.
func TestKeys(t *testing.T) {
	e := newEstate(t)
	for who, u := range map[string]model.Usage{"rich": {Requests: 3, Input: 70, Output: 7, CacheRead: 20, CacheWrite: 3,
		Cost: 0.5}, "run": {Requests: 1}} {
		for _, provider := range []string{"one", "two"} {
			if err := e.store.UseModels(t.Context(), "key:"+who, model.ProviderUsage{Provider: provider, Usage: u}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := api.Key{Name: "rich", Scopes: []string{"run", "sandboxes", "agents", "read", "approve"},
		ModelBudget: &api.ModelBudget{Requests: 5, Cost: 2}, ModelsUsed: api.ModelsUsed{Requests: 6, Tokens: 200, Cost: 1}}
	if got := get[api.KeyList](t, e, rich, "/keys").Keys; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("of itself: %+v, want %+v", got, want)
	}
	all := get[api.KeyList](t, e, machine, "/keys").Keys
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.Name
	}
	if !slices.Equal(names, []string{"admin", "agents", "approve", "few", "metrics", "read", "rich", "run",
		"sandboxes"}) ||
		!reflect.DeepEqual(all[6], want) || all[7].ModelsUsed.Requests != 2 || all[7].ModelBudget != nil {
		t.Errorf("for the machine's owner: %+v", all)
	}
	for _, s := range access.Scopes {
		if got := get[api.KeyList](t, e, "cove_"+string(s), "/keys").Keys; len(got) != 1 || got[0].Name != string(s) {
			t.Errorf("a key with the scope %s: %+v", s, got)
		}
	}
	if users := newEstateFor(t, nil); len(get[api.KeyList](t, users, keeper, "/keys").Keys) != 0 {
		t.Error("a local user sees keys")
	}
}

// TestSandboxesOfAKey: a key makes no more sandboxes than it may have, and the sum of their disk limits is no more than
// it may be; another key's do not count.
func TestSandboxesOfAKey(t *testing.T) {
	e := newEstate(t)
	make := func(who, body string, code int, says string) {
		t.Helper()
		if got, text := e.ask(t, who, "POST", "/sandboxes", body); got != code || !strings.Contains(text, says) {
			t.Errorf("%s %s: %d %s, want %d %q", who, body, got, text, code, says)
		}
	}
	make(keeper, `{"name":"a","limits":{"disk_mb":4096}}`, 200, "event: created")
	make(few, `{"name":"a","limits":{"disk_mb":4096}}`, 409, "disk_mb of the key")
	make(few, `{"name":"a","limits":{"disk_mb":2048}}`, 200, "event: created")
	make(few, `{"name":"b","limits":{"disk_mb":2048}}`, 409, "needs 2048 MiB of the disk, and this API "+
		"key has 1024 MiB left of 3072 MiB: "+
		"the limits of its sandboxes are 2048 MiB together, and its uploads have 0 MiB")
	make(few, `{"name":"b","limits":{"disk_mb":512}}`, 200, "event: created")
	make(few, `{"name":"c","limits":{"disk_mb":1}}`, 409, "this API key has 2 sandboxes")
	if code, text := e.ask(t, few, "DELETE", "/sandboxes/a", ""); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	make(few, `{"name":"c","limits":{"disk_mb":512}}`, 200, "event: created")
}

// TestUploadsOfAKey: uploads and the disk limits of sandboxes have one quota together, whichever comes first; an upload
// counts once where it becomes a sandbox, and another key's does not count.
func TestUploadsOfAKey(t *testing.T) {
	e := newEstate(t)
	const gib = 1 << 30
	send := func(who string, bytes, code int, says string) (id string) {
		t.Helper()
		got, text := e.ask(t, who, "POST", "/uploads", "PACK"+strings.Repeat("x", bytes))
		if got != code || !strings.Contains(text, says) {
			t.Errorf("%s %d: %d %s, want %d %q", who, bytes, got, text, code, says)
		}
		_, id, _ = strings.Cut(text, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		return id
	}
	make := func(mb int, upload string, code int, says string) {
		t.Helper()
		body := fmt.Sprintf(`{"name":"a","limits":{"disk_mb":%d}}`, mb)
		if upload != "" {
			body = fmt.Sprintf(`{"name":"a","limits":{"disk_mb":%d},"repository":{"source":"file://there/a",`+
				`"upload":{"id":%q,"commit":"%040d"}}}`, mb, upload, 1)
		}
		if got, text := e.ask(t, few, "POST", "/sandboxes", body); got != code || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s, want %d %q", body, got, text, code, says)
		}
	}
	id := send(few, 1<<20, 201, "up_")
	make(3*gib>>20, "", 409, "needs 3072 MiB of the disk, and this API key has 3070.9 MiB left")
	make(3*gib>>20, id, 200, "event: created")
	send(few, 1<<20, 409, "needs 1.1 MiB of the disk, and this API key has 0 MiB left of 3072 MiB: the limits of its "+
		"sandboxes are 3072 MiB together, and its uploads have 1.1 MiB")
	send(keeper, 1<<20, 201, "up_")
	if code, text := e.ask(t, few, "DELETE", "/sandboxes/a", ""); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	send(few, 1<<20, 201, "up_")
	make(3*gib>>20-2, "", 409, "and its uploads have 2.1 MiB")
}

// TestCPUOfAKey: the CPU time of a day is counted from the records, so that it is known to the next server as well. It
// is looked at before an execution waits, and after.
func TestCPUOfAKey(t *testing.T) {
	e := newEstate(t)
	body := `{"language":"python","code":"1"}`
	if code, text := e.ask(t, few, "POST", "/sandboxes", `{"name":"a","limits":{"disk_mb":512}}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	spend := func(who cove.Principal, seconds int, ago time.Duration) {
		t.Helper()
		ended := time.Now().Add(-ago)
		x := store.Execution{ID: cove.NewExecutionID(), Language: "python", Owner: who, CreatedAt: ended}
		own := store.NewVault(e.store).For(who)
		err := own.Begin(t.Context(), x)
		x.Status, x.Usage.CPUTime, x.FinishedAt = cove.StatusCompleted, time.Duration(seconds)*time.Second, &ended
		if err := errors.Join(err, own.Finish(t.Context(), x, store.Record{Time: ended, Action: "execute"})); err != nil {
			t.Fatal(err)
		}
	}
	spend(cove.KeyHolder("few"), 100, 25*time.Hour)
	spend(cove.KeyHolder("keeper"), 100, time.Hour)
	spend(cove.KeyHolder("few"), 9, time.Hour)
	if code, text := e.ask(t, few, "POST", "/execute", body); code != 200 {
		t.Errorf("with a second left: %d %s", code, text)
	}
	answers, wait := make(chan string, 2), `{"language":"python","code":"wait"}`
	for range 2 {
		go func() {
			code, text := e.ask(t, few, "POST", "/execute", wait)
			answers <- fmt.Sprint(code, " ", text)
		}()
	}
	<-e.printed
	await.That(t, "another execution of the key waits", func() bool {
		return get[api.Health](t, e, machine, "/health").Queued == 1
	})
	spend(cove.KeyHolder("few"), 1, time.Hour) // the same key's, which ended meanwhile
	running := get[api.ExecutionList](t, e, few, "/executions?status=running").Executions
	if code, text := e.ask(t, few, "DELETE", "/executions/"+running[0].ID, ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	ends := []string{<-answers, <-answers}
	slices.Sort(ends)
	if !strings.HasPrefix(ends[0], "200 ") || !strings.HasPrefix(ends[1], "429 ") ||
		!strings.Contains(ends[1], "of CPU time in the last 24 hours") {
		t.Errorf("one that runs and one that waits while the rest is used: %q", ends)
	}
	await.That(t, "the places are free", func() bool {
		h := get[api.Health](t, e, machine, "/health")
		return h.Active == 0 && h.Queued == 0
	})
	for _, path := range []string{"/execute", "/execute/stream", "/runs", "/sandboxes/a/exec"} {
		q := body
		switch path {
		case "/runs":
			q = `{"agent":"robot","prompt":"x"}`
		case "/sandboxes/a/exec":
			q = `{"args":["true"]}`
		}
		if code, text := e.ask(t, few, "POST", path, q); code != http.StatusTooManyRequests ||
			!strings.Contains(text, "of CPU time in the last 24 hours, of 10 s") {
			t.Errorf("%s with nothing left: %d %s", path, code, text)
		}
	}
	if code, text := e.ask(t, keeper, "POST", "/execute", body); code != 200 {
		t.Errorf("another key: %d %s", code, text)
	}
}

// TestFairShare: a key whose executions have every place, and wait in a long line, delays another key by one of them.
// One that may have one at once leaves the other places free.
func TestFairShare(t *testing.T) {
	e := newEstate(t) // eight run at once, eight wait
	var asking sync.WaitGroup
	ended := make(chan struct{})
	defer func() { close(ended); asking.Wait() }()
	asking.Go(func() {
		for {
			select {
			case <-e.printed:
			case <-ended:
				return
			}
		}
	})
	wait := `{"language":"python","code":"wait"}`
	flood := func(who string, n int) {
		for range n {
			asking.Go(func() { e.ask(t, who, "POST", "/execute", wait) })
		}
	}
	health := func() api.Health { return get[api.Health](t, e, machine, "/health") }
	running := func(who string) []api.Execution {
		return get[api.ExecutionList](t, e, who, "/executions?status=running").Executions
	}
	flood(few, 2)
	await.That(t, "the key has one running and one waiting", func() bool {
		h := health()
		return h.Active == 1 && h.Queued == 1
	})
	flood(stranger, 12)
	await.That(t, "the places are taken, and a part of the line", func() bool {
		h := health()
		return h.Active == 8 && h.Queued == 6
	})
	code, text := e.ask(t, stranger, "POST", "/execute", wait)
	if code != http.StatusTooManyRequests || !strings.Contains(text, "the rest of the line is for others") {
		t.Fatalf("one more of the key that floods: %d %s", code, text)
	}
	answered := make(chan string, 1)
	asking.Go(func() {
		_, text := e.ask(t, keeper, "POST", "/execute", `{"language":"python","code":"1"}`)
		answered <- text
	})
	await.That(t, "another key waits", func() bool { return health().Queued == 7 })
	var all []api.Execution
	await.That(t, "the key that floods runs in the other places", func() bool {
		all = running(stranger)
		return len(all) == 7
	})
	if code, text := e.ask(t, stranger, "DELETE", "/executions/"+all[0].ID, ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	await.That(t, "the other key is served when an execution has ended", func() bool { return len(answered) == 1 })
	if text := <-answered; !strings.Contains(text, `"completed"`) {
		t.Errorf("the other key: %s", text)
	}
	await.That(t, "everything has ended", func() bool {
		for _, x := range running(machine) {
			e.ask(t, machine, "DELETE", "/executions/"+x.ID, "")
		}
		return health().Active == 0
	})
}
