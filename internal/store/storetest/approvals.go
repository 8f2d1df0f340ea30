package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/store"
)

func approvalOf(s approval.Subject, who cove.Principal) approval.Approval {
	return approval.Approval{ID: cove.NewApprovalID(), Policy: "digest", Subject: s, Rule: "policy.yaml:3", Who: who,
		Time: epoch, Until: epoch.Add(time.Hour)}
}

var place = approval.Subject{Host: "api.example.com", Port: 443, Method: "POST", Path: "/v1/items"}

// approvals: one counts for its policy, its subject, its person and its time, until it is revoked.
func approvals(t *testing.T, open Open) {
	dir := t.TempDir()
	s, other := at(t, open, dir), at(t, open, dir)
	a := approvalOf(place, cove.MachineOwner())
	must(t, s.Approve(t.Context(), a))
	for _, c := range []struct {
		name   string
		policy string
		about  func(*approval.Subject)
		who    []cove.Principal
		at     time.Time
		want   bool
	}{
		{"as it was given", "digest", nil, []cove.Principal{cove.KeyHolder("x"), cove.MachineOwner()}, epoch, true},
		{"its last moment", "digest", nil, []cove.Principal{cove.MachineOwner()}, a.Until.Add(-time.Microsecond), true},
		{"too late", "digest", nil, []cove.Principal{cove.MachineOwner()}, a.Until, false},
		{"another policy", "other", nil, []cove.Principal{cove.MachineOwner()}, epoch, false},
		{"another person", "digest", nil, []cove.Principal{cove.KeyHolder("x")}, epoch, false},
		{"nobody", "digest", nil, nil, epoch, false},
		{"another host", "digest", func(s *approval.Subject) { s.Host = "example.com" },
			[]cove.Principal{cove.MachineOwner()}, epoch, false},
		{"another port", "digest", func(s *approval.Subject) { s.Port = 80 },
			[]cove.Principal{cove.MachineOwner()}, epoch, false},
		{"another method", "digest", func(s *approval.Subject) { s.Method = "GET" },
			[]cove.Principal{cove.MachineOwner()}, epoch, false},
		{"every method", "digest", func(s *approval.Subject) { s.Method = "" },
			[]cove.Principal{cove.MachineOwner()}, epoch, false},
		{"another path", "digest", func(s *approval.Subject) { s.Path = "/" },
			[]cove.Principal{cove.MachineOwner()}, epoch, false},
		{"an address", "digest", func(s *approval.Subject) { s.Address = "10.0.0.7" },
			[]cove.Principal{cove.MachineOwner()}, epoch, false},
	} {
		about := place
		if c.about != nil {
			c.about(&about)
		}
		got, err := other.Approved(t.Context(), c.policy, about, c.who, c.at)
		must(t, err)
		if got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}

	again, theirs := a, approvalOf(place, cove.KeyHolder("x"))
	again.ID, again.Until = cove.NewApprovalID(), epoch.Add(2*time.Hour)
	must(t, s.Approve(t.Context(), again))
	must(t, s.Approve(t.Context(), theirs))
	listed := func(at time.Time) []approval.Approval {
		t.Helper()
		all, err := other.Approvals(t.Context(), "", at)
		must(t, err)
		return all
	}
	if got := listed(epoch); !slices.Equal(got, []approval.Approval{theirs, again}) {
		t.Errorf("listed %+v", got)
	}
	if got := listed(theirs.Until); !slices.Equal(got, []approval.Approval{again}) {
		t.Errorf("an hour later %+v", got)
	}
	for who, want := range map[string][]approval.Approval{"key:x": {theirs}, "local": {again}, "key:y": nil} {
		got, err := other.Approvals(t.Context(), who, epoch)
		must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("those of %s are %+v", who, got)
		}
	}
	wantCode(t, other.Revoke(t.Context(), "", a.ID), cove.NotFound)
	wantCode(t, other.Revoke(t.Context(), "key:x", again.ID), cove.NotFound)
	must(t, other.Revoke(t.Context(), "", again.ID))
	wantCode(t, s.Revoke(t.Context(), "", again.ID), cove.NotFound)
	if ok, err := s.Approved(t.Context(), "digest", place, []cove.Principal{cove.MachineOwner()},
		epoch); err != nil || ok {
		t.Errorf("revoked, and found: %v, %v", ok, err)
	}
}

// approvalsAreBounded: those that are over make room. A key that approves as much as it can leaves room for another one,
// and for the machine's owner.
func approvalsAreBounded(t *testing.T, open Open) {
	flooded := start(t, open)
	n := 0
	flood := func(err error) bool { n++; return err == nil }
	for flood(flooded.Approve(t.Context(), approvalOf(approval.Subject{Host: fmt.Sprint("h", n, ".example.com"), Port: 443},
		cove.KeyHolder("flood")))) {
	}
	if n > store.MaxApprovals/2 {
		t.Errorf("a key has %d approvals", n)
	}
	must(t, flooded.Approve(t.Context(), approvalOf(place, cove.KeyHolder("calm"))))
	must(t, flooded.Approve(t.Context(), approvalOf(place, cove.MachineOwner())))
	s := start(t, open)
	for i := range store.MaxApprovals {
		must(t, s.Approve(t.Context(), approvalOf(approval.Subject{Host: fmt.Sprint("h", i, ".example.com"), Port: 443},
			cove.MachineOwner())))
	}
	late := approvalOf(place, cove.MachineOwner())
	wantCode(t, s.Approve(t.Context(), late), cove.TooLarge)
	late.Time, late.Until = epoch.Add(time.Hour), epoch.Add(2*time.Hour)
	must(t, s.Approve(t.Context(), late))
	all, err := s.Approvals(t.Context(), "", late.Time)
	must(t, err)
	if len(all) != 1 {
		t.Errorf("%d are left", len(all))
	}
}
