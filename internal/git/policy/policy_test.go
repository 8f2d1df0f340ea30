package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	zero = "0000000000000000000000000000000000000000"
	a    = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	b    = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func own(refs ...Refs) *Policy { return &Policy{ID: "test", Push: refs, Update: Allow} }

// TestAdmit covers decisions by the command alone (PROBES G1, G2).
func TestAdmit(t *testing.T) {
	branch := own("refs/heads/own")
	area := own("refs/heads/team/**")
	everything := own("refs/heads/**", "refs/notes/review")
	everything.Protected = []Refs{"refs/heads/frozen/**"}
	generous := own("refs/heads/own")
	generous.Force, generous.Delete, generous.Tags, generous.Options = Allow, Allow, Allow, Allow
	one := func(ref, old, new string) Push { return Push{Updates: []Update{{ref, old, new}}} }
	for name, c := range map[string]struct {
		policy *Policy
		push   Push
		says   string // "": allowed
	}{
		"own branch":             {branch, one("refs/heads/own", a, b), ""},
		"own branch, new":        {branch, one("refs/heads/own", zero, b), ""},
		"below own area":         {area, one("refs/heads/team/x/y", zero, b), ""},
		"own area itself":        {area, one("refs/heads/team", zero, b), "pushes to team/** only"},
		"beside own area":        {area, one("refs/heads/teamwork/x", zero, b), "pushes to team/** only"},
		"main":                   {branch, one("refs/heads/main", a, b), "pushes to own only"},
		"another sandbox's":      {branch, one("refs/heads/other", a, b), "pushes to own only"},
		"traversal":              {area, one("refs/heads/team/../main", a, b), "no such names"},
		"a tag":                  {branch, one("refs/tags/v1", zero, b), "pushes to own only"},
		"a note":                 {branch, one("refs/notes/commits", zero, b), "pushes to own only"},
		"a note that is named":   {everything, one("refs/notes/review", zero, b), ""},
		"a replacement":          {own("refs/replace/**"), one("refs/replace/"+a, zero, b), "no policy"},
		"a pull request":         {own("refs/pull/**"), one("refs/pull/1/head", zero, b), "no policy"},
		"a merge request":        {own("refs/merge-requests/**"), one("refs/merge-requests/1/head", zero, b), "no policy"},
		"a review":               {own("refs/for/**"), one("refs/for/main", zero, b), "no policy"},
		"configuration":          {own("refs/meta/**"), one("refs/meta/config", zero, b), "no policy"},
		"a stash":                {own("refs/stash"), one("refs/stash", zero, b), "no policy"},
		"HEAD":                   {everything, one("HEAD", a, b), "no policy"},
		"something pseudo":       {everything, one("FETCH_HEAD", a, b), "no policy"},
		"no directory":           {everything, one("refs/main", a, b), "no policy"},
		"not in refs":            {everything, one("heads/own", a, b), "no policy"},
		"a case variant":         {branch, one("refs/heads/OWN", zero, b), "pushes to own only"},
		"a case variant of refs": {branch, one("refs/Heads/own", zero, b), "pushes to own only"},
		"D/F conflict":           {branch, one("refs/heads/own/x", zero, b), "pushes to own only"},
		"D/F conflict above":     {own("refs/heads/own/x"), one("refs/heads/own", zero, b), "pushes to own/x only"},
		"4 KB":                   {area, one("refs/heads/team/"+strings.Repeat("x", 4096), zero, b), "too long"},
		"newline":                {area, one("refs/heads/team/x\ny", zero, b), "characters"},
		"ANSI":                   {area, one("refs/heads/team/\x1b[31mx", zero, b), "characters"},
		"NUL":                    {area, one("refs/heads/team/x\x00y", zero, b), "characters"},
		"bidi":                   {area, one("refs/heads/team/\u202ex", zero, b), "characters"},
		"not UTF-8":              {area, one("refs/heads/team/\xff", zero, b), "UTF-8"},
		"lock":                   {area, one("refs/heads/team/x.lock", zero, b), "no such names"},
		"lock within":            {area, one("refs/heads/team/x.lock/y", zero, b), "no such names"},
		"reflog":                 {area, one("refs/heads/team/x@{1}", zero, b), "no such names"},
		"hidden":                 {area, one("refs/heads/team/.x", zero, b), "no such names"},
		"two slashes":            {area, one("refs/heads/team//x", zero, b), "no such names"},
		"an option":              {area, one("refs/heads/team/-x", zero, b), "no such names"},
		"a pattern":              {area, one("refs/heads/team/*", zero, b), "characters"},
		"a space":                {area, one("refs/heads/team/x y", zero, b), "characters"},
		"no name":                {area, one("", zero, b), "empty"},
		"deletion":               {branch, one("refs/heads/own", a, zero), "no deletion"},
		"deletion, allowed":      {generous, one("refs/heads/own", a, zero), ""},
		"nothing to nothing":     {generous, one("refs/heads/own", zero, zero), "at once"},
		"delete and create": {generous,
			Push{Updates: []Update{{"refs/heads/own", a, zero}, {"refs/heads/own", zero, b}}}, "force push"},
		"twice in two cases": {own("refs/heads/**"),
			Push{Updates: []Update{{"refs/heads/x", zero, a}, {"refs/heads/X", zero, b}}}, "force push"},
		"a new tag, allowed":     {generous, one("refs/tags/v1", zero, b), ""},
		"a tag that is there":    {generous, one("refs/tags/v1", a, b), "created only"},
		"a tag's deletion":       {generous, one("refs/tags/v1", a, zero), "created only"},
		"well known, by pattern": {everything, one("refs/heads/main", a, b), "pushes to"},
		"release, by pattern":    {everything, one("refs/heads/release/1", a, b), "pushes to"},
		"main, by its name":      {own("refs/heads/main"), one("refs/heads/main", a, b), ""},
		"protected":              {everything, one("refs/heads/frozen/x", zero, b), "protected"},
		"one of many": {branch, Push{Updates: []Update{{"refs/heads/own", a, b}, {"refs/heads/main", a, b}}},
			"pushes to own only"},
		"nothing allowed":  {&Policy{}, one("refs/heads/own", zero, b), "only reads"},
		"no object id":     {branch, one("refs/heads/own", "HEAD", b), "malformed"},
		"capitals":         {branch, one("refs/heads/own", a, strings.ToUpper(b)), "malformed"},
		"two kinds of ids": {branch, one("refs/heads/own", a, b+strings.Repeat("b", 24)), "malformed"},
		"SHA-256":          {branch, one("refs/heads/own", a+strings.Repeat("a", 24), b+strings.Repeat("b", 24)), ""},
		"a certificate":    {generous, Push{Updates: []Update{{"refs/heads/own", a, b}}, Certificate: true}, "signed"},
		"options": {branch, Push{Updates: []Update{{"refs/heads/own", a, b}}, Options: []string{"ci.skip"}},
			"options"},
		"options, allowed": {generous, Push{Updates: []Update{{"refs/heads/own", a, b}}, Options: []string{"x;y\nz"}}, ""},
		"a large pack":     {branch, Push{Updates: []Update{{"refs/heads/own", a, b}}, Pack: DefaultMaxPack + 1}, "512 MiB"},
		"too many": {own("refs/heads/**"), Push{
			Updates: slices.Repeat([]Update{{"refs/heads/x", zero, a}}, DefaultMaxUpdates+1),
		}, "force push"},
		"as many as may be": {own("refs/tags/**"), Push{Updates: tagged(DefaultMaxUpdates)}, ""},
		"one too many": {own("refs/tags/**"), Push{Updates: tagged(DefaultMaxUpdates + 1)},
			"it has 257 updates, and a push has 256 at most [max_updates]; push the refs in parts"},
		"as many as the policy says": {&Policy{Push: []Refs{"refs/tags/**"}, Update: Allow, MaxUpdates: 300},
			Push{Updates: tagged(300)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.policy.Admit(c.push)
			r, refused := v.Refused()
			if refused != (c.says != "") || refused != (v.Action == Deny) || !strings.Contains(reasons(v), c.says) {
				t.Errorf("%v %+v", v.Action, r)
			}
			if strings.ContainsAny(r.Reason, "\n\x1b\x00") {
				t.Errorf("%q cannot be shown", r.Reason)
			}
		})
	}
	if v := branch.Admit(Push{}); v.Action != Deny {
		t.Error("a push of nothing is allowed")
	}
}

// tagged returns the updates of a push of so many new tags.
func tagged(n int) (all []Update) {
	for i := range n {
		all = append(all, Update{fmt.Sprintf("refs/tags/v%d", i), zero, b})
	}
	return all
}

func reasons(v Verdict) string {
	var all []string
	for _, r := range v.Updates {
		all = append(all, r.Reason, r.Explain())
	}
	return strings.Join(all, "\n")
}

// TestJudge covers the content of a push.
func TestJudge(t *testing.T) {
	update, creation := Update{"refs/heads/own", a, b}, Update{"refs/heads/own", zero, b}
	key := []Secret{{"key", regexp.MustCompile("KEY")}}
	descends := map[Update]Ancestry{update: Descends}
	for name, c := range map[string]struct {
		policy *Policy
		update Update
		facts  Facts
		action Action
		says   string
	}{
		"descends": {own("refs/heads/own"), update, Facts{Ancestry: descends}, Allow, ""},
		"diverges": {own("refs/heads/own"), update, Facts{Ancestry: map[Update]Ancestry{update: Diverges}},
			Deny, "force push"},
		"cannot be told": {own("refs/heads/own"), update, Facts{Ancestry: map[Update]Ancestry{update: Unknown}}, Deny,
			"cannot be shown"},
		"was not asked": {own("refs/heads/own"), update, Facts{}, Deny, "cannot be shown"},
		"creation":      {own("refs/heads/own"), creation, Facts{}, Allow, ""},
		"creation of what was": {own("refs/heads/own"), creation, Facts{Ancestry: map[Update]Ancestry{creation: Diverges}},
			Deny, "force push"},
		"force": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Force: Allow}, update,
			Facts{}, Allow, ""},
		"force, asked": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Force: Ask}, update, Facts{}, Ask,
			"cannot be shown"},
		"every push is asked": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Ask}, update,
			Facts{Ancestry: descends}, Ask, ""},
		"a workflow": {own("refs/heads/own"), creation,
			Facts{Changes: []Change{{Path: ".github/workflows/ci.yml"}}}, Deny, ".github/workflows/ci.yml"},
		"a workflow, deleted": {own("refs/heads/own"), creation,
			Facts{Changes: []Change{{Path: ".github/workflows/ci.yml", Delete: true}}}, Deny, "ci.yml"},
		"in capitals": {own("refs/heads/own"), creation,
			Facts{Changes: []Change{{Path: ".GitHub/Workflows/ci.yml"}}}, Deny, "Workflows"},
		"an action within": {own("refs/heads/own"), creation, Facts{Changes: []Change{{Path: "a/b/action.yml"}}},
			Deny, "action.yml"},
		"owners": {own("refs/heads/own"), creation, Facts{Changes: []Change{{Path: "docs/CODEOWNERS"}}},
			Deny, "CODEOWNERS"},
		"a link for a directory": {own("refs/heads/own"), creation,
			Facts{Changes: []Change{{Path: ".github", Mode: Symlink}}}, Deny, ".github"},
		"a submodule for one": {own("refs/heads/own"), creation,
			Facts{Changes: []Change{{Path: ".github/workflows", Mode: Gitlink}}}, Deny, ".github"},
		"a file for one": {own("refs/heads/own"), creation, Facts{Changes: []Change{{Path: ".github", Mode: File}}}, Allow,
			""},
		"none blocked": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Block: []Files{}}, creation,
			Facts{Changes: []Change{{Path: "CODEOWNERS"}}}, Allow, ""},
		"ANSI in a path": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Block: []Files{"**"}}, creation,
			Facts{Changes: []Change{{Path: "a\x1b[2J\nb"}}}, Deny, `"a\x1b[2J\nb"`},
		"a warning": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Warn: Noted}, creation,
			Facts{Changes: []Change{{Path: ".gitmodules"}}}, Allow, ""},
		"a secret": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Secrets: key}, creation,
			Facts{Secrets: []Found{{Path: "x", Line: 3, Secret: "key"}}}, Deny, "(key) in x, line 3"},
		"a known one": {own("refs/heads/own"), creation, Facts{Secrets: []Found{{Path: "x", Line: 3, Secret: "GitHub token",
			Known: true, Commit: b}}}, Deny,
			"(GitHub token) in x, line 3 of commit bbbbbbbbbbbb [known_secrets]; take it out of the commit"},
		"a known one, asked": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Known: Ask}, creation,
			Facts{Secrets: []Found{{Path: "x", Line: 3, Known: true}}}, Ask, "x, line 3"},
		"a known one, allowed": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Known: Allow}, creation,
			Facts{Secrets: []Found{{Path: "x", Line: 3, Known: true}}}, Allow, ""},
		"many deletions": {own("refs/heads/own"), creation, Facts{Deleted: DefaultMaxDeleted + 1}, Ask,
			"it deletes 101 files, and more than 100 (max_deleted) need approval"},
		"a tenth of the files": {own("refs/heads/own"), creation, Facts{Deleted: 500, Files: 5000}, Allow, ""},
		"more than a tenth": {own("refs/heads/own"), creation, Facts{Deleted: 501, Files: 5000}, Ask,
			"it deletes 501 files, and more than 500 (max_deleted)"},
		"some deletions": {own("refs/heads/own"), creation, Facts{Deleted: DefaultMaxDeleted}, Allow, ""},
		"more than the policy says": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, MaxDeleted: 2}, creation,
			Facts{Deleted: 3}, Ask, "it deletes 3 files, and more than 2"},
		"many deletions by force": {&Policy{Push: []Refs{"refs/heads/own"}, Update: Allow, Force: Ask}, update,
			Facts{Deleted: 200, Ancestry: map[Update]Ancestry{update: Diverges}}, Ask, "leave commits behind (a force push)"},
		"a defect": {own("refs/heads/own"), creation, Facts{Defects: []string{"the pack is broken"}}, Deny, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.policy.Judge(Push{Updates: []Update{c.update}}, c.facts)
			if v.Action != c.action || !strings.Contains(reasons(v), c.says) || strings.ContainsAny(reasons(v), "\x1b") {
				t.Errorf("%+v", v)
			}
			if warned := len(v.Warnings) > 0; warned != (name == "a warning") {
				t.Errorf("warnings: %q", v.Warnings)
			}
		})
	}
}

// TestOperation: what an approval is for says what is unusual about an update, so that the approval of an ordinary push
// is not one of a push that deletes much.
func TestOperation(t *testing.T) {
	update := Update{"refs/heads/own", a, b}
	p := &Policy{Push: []Refs{"refs/heads/own"}, Update: Ask, Force: Ask, Delete: Allow, Known: Ask, MaxDeleted: 1}
	descends := Facts{Ancestry: map[Update]Ancestry{update: Descends}}
	for want, c := range map[string]struct {
		updates []Update
		facts   Facts
	}{
		"PUSH": {[]Update{update}, descends}, "FORCE": {[]Update{update}, Facts{}},
		"PUSH+DELETIONS":         {[]Update{update}, Facts{Ancestry: descends.Ancestry, Deleted: 2}},
		"FORCE+DELETIONS+SECRET": {[]Update{update}, Facts{Deleted: 2, Secrets: []Found{{Known: true}}}},
		"DELETE":                 {[]Update{{"refs/heads/own", a, zero}}, Facts{}},
	} {
		v := p.Judge(Push{Updates: c.updates}, c.facts)
		if r := v.Updates[0]; v.Action != Ask || r.Operation != want || r.Reason == "" {
			t.Errorf("%s: %+v", want, v)
		}
	}
	many := &Policy{Push: []Refs{"refs/heads/**"}, Update: Allow, Delete: Allow, MaxDeleted: 1}
	push := Push{Updates: []Update{{"refs/heads/x", a, zero}, {"refs/heads/y", a, zero}}}
	if v := many.Judge(push, Facts{}); v.Action != Ask || v.Updates[1].Operation != "DELETE+DELETIONS" ||
		!strings.Contains(reasons(v), "it deletes 2 branches and tags, and more than 1 (max_deleted) need approval") {
		t.Errorf("%+v", v)
	}
	push.Updates = push.Updates[:1]
	if v := many.Judge(push, Facts{}); v.Action != Allow {
		t.Errorf("%+v", v)
	}
}

// TestSees covers the visible refs (PROBES G3).
func TestSees(t *testing.T) {
	p := own("refs/heads/own", "refs/heads/team/**")
	narrow := &Policy{Fetch: []Refs{"refs/heads/main"}, Push: []Refs{"refs/heads/own"}}
	if !p.SeesTags() || narrow.SeesTags() || !own("refs/tags/**").SeesTags() {
		t.Error("tags")
	}
	for ref, want := range map[string][2]bool{
		"refs/heads/own": {true, true}, "refs/heads/team/x": {true, false}, "refs/heads/main": {true, true},
		"refs/heads/start":     {true, false},
		"refs/heads/release/1": {true, false}, "refs/tags/v1": {true, false}, "HEAD": {true, false},
		"refs/heads/other": {}, "refs/pull/1/head": {}, "refs/notes/commits": {}, "refs/replace/" + a: {},
		"refs/heads/Own": {}, "refs/heads/own/x": {}, "": {},
	} {
		if got := [2]bool{p.Sees(ref, "refs/heads/start"), narrow.Sees(ref, "refs/heads/start")}; got != want {
			t.Errorf("%q: %v", ref, got)
		}
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]Refs{"x": "refs/heads/x", "x/**": "refs/heads/x/**", "**": "refs/heads/**",
		"refs/tags/**": "refs/tags/**", "refs/heads/x": "refs/heads/x",
		"": "", "*": "", "x/*": "", "x/**/y": "", "a..b": "", "refs/**": "", "refs": "", "refs/x": "", "x\n": "",
		"-x": "", "x/": ""} {
		if got, why := ParseRefs(in); got != want || (why == "") != (want != "") {
			t.Errorf("%q: %q %q", in, got, why)
		}
	}
	for in, good := range map[string]bool{"a": true, "a/**": true, "**/a": true, "/a": false, "a/": false, "a//b": false,
		"a/../b": false, "": false, "*********": false} {
		if _, why := ParseFiles(in); (why == "") != good {
			t.Errorf("%q: %q", in, why)
		}
	}
	for pattern, paths := range map[Files][2][]string{
		"a/**":   {{"a/b", "a/b/c", "A/b"}, {"a", "b/a/c", "ab/c"}},
		"x.yml":  {{"x.yml", "a/b/x.yml"}, {"ax.yml", "x.yml/a"}},
		"a/*.go": {{"a/x.go", "a/.go"}, {"a/b/x.go", "x.go"}},
		"J.*":    {{"J.x", "a/j."}, {"J"}},
		"*a*b*":  {{"ab", "xaxbx"}, {"ba"}},
		"**":     {{"a", "a/b"}, nil},
	} {
		for i, some := range paths {
			for _, path := range some {
				if pattern.Has(path) != (i == 0) {
					t.Errorf("%s and %s", pattern, path)
				}
			}
		}
	}
}

var (
	someRefs = []string{"refs/heads/own", "refs/heads/team/x", "refs/heads/main", "refs/tags/v1", "refs/notes/n",
		"refs/pull/1/head", "HEAD", "refs/heads/a..b"}
	someSets = []Refs{"refs/heads/own", "refs/heads/team/**", "refs/heads/**", "refs/heads/main", "refs/notes/n",
		"refs/pull/**", "refs/tags/**"}
	someFiles = []string{"a", ".github/workflows/x", "CODEOWNERS", ".gitmodules"}
)

func drawPolicy(t *rapid.T) *Policy {
	action := rapid.SampledFrom([]Action{Deny, Ask, Allow})
	sets := rapid.SliceOfN(rapid.SampledFrom(someSets), 0, 3)
	p := &Policy{Push: sets.Draw(t, "push"), Protected: sets.Draw(t, "protected"), Update: action.Draw(t, "update"),
		Force:  action.Draw(t, "force"),
		Delete: action.Draw(t, "delete"), Tags: action.Draw(t, "tags"), Options: action.Draw(t, "options"),
		MaxPack: rapid.Int64Range(0, 3).Draw(t, "max"), MaxUpdates: rapid.IntRange(0, 3).Draw(t, "max updates"),
		MaxDeleted: rapid.IntRange(0, 2).Draw(t, "max deleted"), Known: action.Draw(t, "known")}
	if rapid.Bool().Draw(t, "fetch") {
		p.Fetch = append([]Refs{}, sets.Draw(t, "see")...)
	}
	return p
}

func drawPush(t *rapid.T) (Push, Facts) {
	push, facts := Push{Pack: rapid.Int64Range(0, 3).Draw(t, "pack")}, Facts{Ancestry: map[Update]Ancestry{}}
	ids := rapid.SampledFrom([]string{zero, a, b})
	for range rapid.IntRange(0, 3).Draw(t, "updates") {
		u := Update{rapid.SampledFrom(someRefs).Draw(t, "ref"), ids.Draw(t, "old"), ids.Draw(t, "new")}
		push.Updates = append(push.Updates, u)
		if rapid.Bool().Draw(t, "known") {
			facts.Ancestry[u] = rapid.SampledFrom([]Ancestry{Unknown, Descends, Diverges}).Draw(t, "ancestry")
		}
	}
	for _, path := range rapid.SliceOfN(rapid.SampledFrom(someFiles), 0, 2).Draw(t, "files") {
		facts.Changes = append(facts.Changes, Change{Path: path, Mode: File})
	}
	facts.Deleted = rapid.IntRange(0, 3).Draw(t, "deleted")
	if rapid.Bool().Draw(t, "a key") {
		facts.Secrets = []Found{{Path: "x", Known: true}}
	}
	return push, facts
}

// narrower removes one permission of a policy.
func narrower(t *rapid.T, p *Policy) *Policy {
	q := *p
	lower := func(a *Action) { *a = max(Deny, *a-1) }
	without := func(sets []Refs) []Refs {
		if len(sets) == 0 {
			return sets
		}
		return slices.Delete(slices.Clone(sets), 0, 1)
	}
	switch rapid.IntRange(0, 12).Draw(t, "less") {
	case 0:
		lower(&q.Update)
	case 1:
		lower(&q.Force)
	case 2:
		lower(&q.Delete)
	case 3:
		lower(&q.Tags)
	case 4:
		lower(&q.Options)
	case 5:
		q.Push = without(q.Push)
	case 6:
		q.Fetch = without(q.Fetch)
	case 7:
		q.Protected = append(slices.Clone(q.Protected), rapid.SampledFrom(someSets).Draw(t, "protect"))
	case 8:
		q.MaxPack = min(1, q.PackLimit())
	case 9:
		q.Block = append(slices.Clone(q.blocked()), "a")
	case 10:
		lower(&q.Known)
	case 11:
		q.MaxUpdates = 1
	case 12:
		q.MaxDeleted = 1
	}
	return &q
}

// TestLessIsNeverMore: removing a permission never adds reach.
func TestLessIsNeverMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		q := narrower(t, p)
		push, facts := drawPush(t)
		if v, w := p.Judge(push, facts), q.Judge(push, facts); w.Action > v.Action {
			t.Fatalf("%+v allows more than %+v:\n%+v\n%+v", q, p, w, v)
		}
		for _, ref := range someRefs {
			if q.Sees(ref, "refs/heads/main") && !p.Sees(ref, "refs/heads/main") {
				t.Fatalf("%+v sees %s, and %+v does not", q, ref, p)
			}
		}
	})
}

// TestRefusedStaysRefused: an update that is refused alone is refused in any push, and so is the push; and facts never
// allow an update that its command alone forbids.
func TestRefusedStaysRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		push, facts := drawPush(t)
		whole := p.Judge(push, facts)
		if whole.Action > p.Admit(push).Action {
			t.Fatal("facts open what was refused")
		}
		for i, u := range push.Updates {
			alone := push
			alone.Updates = []Update{u}
			if v := p.Judge(alone, facts); v.Action < whole.Action || v.Updates[0].Action < whole.Updates[i].Action {
				t.Fatalf("%+v alone: %+v\nwith others: %+v", u, v, whole)
			}
		}
		for _, r := range whole.Updates {
			if whole.Action == Allow && r.Action != Allow || whole.Action == Deny && r.Action != Deny {
				t.Fatalf("a push that is neither whole nor refused: %+v", whole)
			}
		}
	})
}

// FuzzCheckName: an accepted name is printable, and is one ref.
func FuzzCheckName(f *testing.F) {
	for _, s := range append(someRefs, "refs/heads/x\x00", "refs/heads/\u202e", "@", "refs/heads/@{", "a.lock/b",
		"refs//x", "-x") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != "" {
			return
		}
		if strings.ContainsAny(name, "\x00\n\r\t \x1b\x7f~^:?*[\\") || strings.Contains(name, "..") || len(name) > maxName {
			t.Errorf("%q", name)
		}
	})
}
