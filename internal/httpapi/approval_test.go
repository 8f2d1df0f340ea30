package httpapi

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

var heldAt = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func holdOf(s approval.Subject) approval.Hold {
	return approval.Hold{ID: cove.NewHoldID(), Execution: cove.NewExecutionID(), Subject: s, Method: "POST",
		Path: "/v1/items", Rule: "policy.yaml:3", Reason: "needs a person",
		Since: heldAt, Until: heldAt.Add(2 * time.Minute), Count: 3}
}

var (
	public  = approval.Subject{Host: "api.example.com", Port: 443, Method: "POST"}
	service = approval.Subject{Host: "host.cove.internal", Port: 5432}
	inside  = approval.Subject{Host: "db.example.com", Port: 443, Address: "10.0.0.7"}
)

func TestHolds(t *testing.T) {
	h := start(t, nil)
	if r := h.get("/network/holds"); r.body != `{"holds":[]}`+"\n" {
		t.Errorf("nothing waits: %d %s", r.StatusCode, r.body)
	}
	first, second := holdOf(public), holdOf(inside)
	h.fake.holds = []approval.Hold{first, second}
	list := decode[api.HoldList](t, h.get("/network/holds"), 200)
	want := api.Hold{ID: string(first.ID), Execution: string(first.Execution), Host: "api.example.com", Port: 443,
		Method: "POST", Path: "/v1/items", About: "POST api.example.com:443",
		Count: 3, Rule: "policy.yaml:3", Reason: "needs a person", Since: heldAt, Until: heldAt.Add(2 * time.Minute)}
	if len(list.Holds) != 2 || list.Holds[0] != want || list.Holds[1].Address != "10.0.0.7" {
		t.Errorf("%+v", list)
	}
	list = decode[api.HoldList](t, h.get("/network/holds?execution="+string(second.Execution)), 200)
	if len(list.Holds) != 1 || list.Holds[0].ID != string(second.ID) {
		t.Errorf("of one execution: %+v", list)
	}
}

func TestAnswerHold(t *testing.T) {
	h := start(t, nil)
	hold := holdOf(public)
	h.fake.holds = []approval.Hold{hold}
	path := "/network/holds/" + string(hold.ID)
	for body, want := range map[string]approval.Answer{
		`{"allow":true}`:  {Allow: true, Scope: approval.Once},
		`{"allow":false}`: {Scope: approval.Sandbox},
		`{"allow":true,"scope":"sandbox","for":90.5}`: {Allow: true, Scope: approval.Sandbox, For: 90500 * time.Millisecond},
		`{"allow":true,"scope":"policy"}`:             {Allow: true, Scope: approval.Policy, For: approval.DefaultLife},
	} {
		if r := h.post(path, body); r.StatusCode != 204 {
			t.Errorf("%s: status %d: %s", body, r.StatusCode, r.body)
			continue
		}
		if got := h.fake.answered[len(h.fake.answered)-1]; got != want || h.fake.who != caller {
			t.Errorf("%s: %+v of %q, want %+v", body, got, h.fake.who, want)
		}
	}
	for body, status := range map[string]int{
		`{}`: 400, `{"allow":"yes"}`: 400, `{"allow":true,"scope":"ever"}`: 400, `{"allow":true,"for":60}`: 400,
		`{"allow":true,"scope":"sandbox","for":-1}`:   400,
		`{"allow":true,"scope":"policy","for":1e300}`: 400, `{"allow":false,"scope":"policy"}`: 400,
		`{"allow":true,"who":"local"}`: 400,
	} {
		if r := h.post(path, body); r.StatusCode != status {
			t.Errorf("%s: status %d, want %d", body, r.StatusCode, status)
		}
	}
	r, err := h.client.Post(h.url+path, "text/plain", strings.NewReader(`{"allow":true}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 415 {
		t.Errorf("as a web page could send it: status %d", r.StatusCode)
	}
	for _, id := range []string{string(cove.NewHoldID()), "x", "..", "ho_"} {
		if r := h.post("/network/holds/"+id, `{"allow":true}`); r.StatusCode != 404 {
			t.Errorf("%s: status %d", id, r.StatusCode)
		}
	}
}

// TestApprovalOfStrangers: what only the owner may open, only the owner may
// approve; to deny it is anybody's who may call.
func TestApprovalOfStrangers(t *testing.T) {
	h := start(t, nil)
	for _, s := range []approval.Subject{service, inside, {Host: "192.168.1.1", Port: 80}} {
		hold := holdOf(s)
		h.fake.holds = []approval.Hold{hold}
		path := "/network/holds/" + string(hold.ID)
		if r := h.post(path, `{"allow":true,"scope":"sandbox"}`); r.StatusCode != 403 {
			t.Errorf("%s: status %d", s, r.StatusCode)
		}
		if r := h.post(path, `{"allow":false}`); r.StatusCode != 204 {
			t.Errorf("%s, denied: status %d", s, r.StatusCode)
		}
		if r := h.do(h.owner, "POST", path, `{"allow":true}`); r.StatusCode != 204 {
			t.Errorf("%s, by the owner: status %d: %s", s, r.StatusCode, r.body)
		}
	}
	audited := h.store.audited()
	if len(audited) != 3 || audited[0].Action != "approve" || audited[0].Verdict != "deny" ||
		audited[0].Who != caller.String() {
		t.Errorf("the record: %+v", audited)
	}
}

func TestApprovals(t *testing.T) {
	h := start(t, nil)
	a := approval.Approval{ID: cove.NewApprovalID(), Policy: "d1", Subject: public, Rule: "policy.yaml:3",
		Who: cove.MachineOwner(), Time: heldAt, Until: heldAt.Add(time.Hour)}
	h.store.approvals = []approval.Approval{a}
	list := decode[api.ApprovalList](t, h.do(h.owner, "GET", "/network/approvals", ""), 200)
	want := api.Approval{ID: string(a.ID), Policy: "d1", About: "POST api.example.com:443", Rule: "policy.yaml:3",
		Who: "local", Time: heldAt, Until: heldAt.Add(time.Hour)}
	if len(list.Approvals) != 1 || list.Approvals[0] != want {
		t.Errorf("%+v", list)
	}
	if r := h.do(h.client, "DELETE", "/network/approvals/"+string(a.ID), ""); r.StatusCode != 204 ||
		len(h.fake.revoked) != 1 || h.fake.revoked[0] != a.ID {
		t.Errorf("status %d: %s", r.StatusCode, r.body)
	}
	if r := h.do(h.client, "DELETE", "/network/approvals/x", ""); r.StatusCode != 404 {
		t.Errorf("no id: status %d", r.StatusCode)
	}
}

// TestHoldsInTheStream: whoever runs something hears what waits for an answer.
func TestHoldsInTheStream(t *testing.T) {
	h := start(t, nil)
	hold := holdOf(public)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		out.(execution.Asked).Holds([]approval.Hold{hold})
		out.(execution.Asked).Holds(nil)
		return finished(id), nil
	}
	r := h.post("/execute/stream", snippet)
	first, second := strings.Index(r.body, "event: holds\ndata: {\"holds\":[{\"id\":\""+string(hold.ID)),
		strings.Index(r.body, "event: holds\ndata: {\"holds\":[]}\n")
	if first < 0 || second < first {
		t.Errorf("%s", r.body)
	}
}
