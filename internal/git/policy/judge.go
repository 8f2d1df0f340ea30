package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Update is one command of a push. Object ids are hexadecimal; an id of zeros means that the ref does not exist, before
// or after.
type Update struct{ Ref, Old, New string }

// Creates reports whether the ref does not exist before the update.
func (u Update) Creates() bool { return isZero(u.Old) }
func (u Update) Deletes() bool { return isZero(u.New) }

func isZero(id string) bool { return strings.Trim(id, "0") == "" }

// IsObjectID reports whether s is an object id, SHA-1 or SHA-256, in git's own form.
func IsObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// Push is the content of one push.
type Push struct {
	Updates     []Update
	Options     []string // arbitrary bytes
	Certificate bool     // the push is signed
	Shallow     []string // commits whose parents the client lacks
	Pack        int64    // bytes of the pack; 0 without one
}

// Ancestry is the relation of an update's two commits.
type Ancestry int

const (
	Unknown  Ancestry = iota // counts as no descent
	Descends                 // the old commit is in the history of the new one
	Diverges
)

// Change is a changed path of a commit.
type Change struct {
	Commit string
	Path   string
	Mode   Mode
	Delete bool
}

// Mode is the type and permissions of a tree entry, octal in git.
type Mode uint32

// Modes in git.
const (
	File    Mode = 0o100644
	Program Mode = 0o100755
	Symlink Mode = 0o120000
	Gitlink Mode = 0o160000 // a submodule
)

// Found is an added line that contains a Secret.
type Found struct {
	Commit string
	Path   string
	Line   int // from 1
	Secret string
	Known  bool // told by its form, and not by a Secret of the policy
}

// Facts are the findings about a push, from its pack and the server's objects.
type Facts struct {
	// Ancestry holds the updates that change a ref. For an update that creates a ref deleted a moment ago, it is
	// relative to the deleted commit.
	Ancestry map[Update]Ancestry
	Commits  int // new ones
	Changes  []Change
	Secrets  []Found
	// Deleted counts the files that the new commits delete; files that they move are not among them.
	Deleted int
	// Files counts those in what the push is built on, where it deletes more than DefaultMaxDeleted.
	Files int
	// Unsearched reports that not all files were searched for secrets of known forms.
	Unsearched bool
	// Defects are reasons why the push's content is uncertain; it is refused.
	Defects []string
}

// Verdict is the decision on a push, which is forwarded only if Action is Allow.
type Verdict struct {
	Action   Action
	Updates  []Ruling // in the order of the push
	Warnings []string
}

// Ruling is the decision on one update.
type Ruling struct {
	Update Update
	Action Action
	Rule   string // "policy.yaml:12", or "git: protocol" for updates that no policy allows
	Key    string // of the policy's git section, as in max_deleted; "" where no policy decides
	Reason string // one printable line
	// Operation names the subject of an approval: PUSH, FORCE or DELETE, and what is unusual about it, as in
	// PUSH+DELETIONS.
	Operation string
}

// hold lowers the action of a ruling. Two reasons to ask are one question.
func (r *Ruling) hold(a Action, key, unusual, reason string) {
	switch {
	case a == Ask && r.Action == Ask:
		r.Operation += unusual
		r.Reason += "; " + reason
	case a < r.Action:
		r.Action, r.Key, r.Reason = a, key, reason
		r.Operation += unusual
	}
}

// advice says what to do about a refusal, by the key that decides it.
var advice = map[string]string{
	"push":        "push to a ref of its own, or have push in the policy's git section name this one",
	"own":         "have it approved, or push to another branch, or have push in the policy's git section name this one",
	"protected":   "push to another branch, and have that merged",
	"update":      "have the owner take the work over, or set update in the policy's git section",
	"force":       "merge or rebase onto what is there, or set force in the policy's git section",
	"delete":      "leave it where it is, or set delete in the policy's git section",
	"tags":        "leave the tag out, or set tags in the policy's git section",
	"options":     "push without -o, or set options in the policy's git section",
	"max_pack_mb": "push in parts, or raise max_pack_mb in the policy's git section",
	"max_updates": "push the refs in parts, or raise max_updates in the policy's git section",
	"max_deleted": "have it approved, or raise max_deleted in the policy's git section",
	"files":       "take it out of the commit (git rebase -i), or have files in the policy's git section allow it",
	"secrets":     "take it out of the commit (git rebase -i), and change the secret if it has been seen elsewhere",
	"known_secrets": "take it out of the commit (git rebase -i); if it is none, known_secrets in the policy's git " +
		"section allows it",
	"": "no policy allows it",
}

// Keys returns the keys of a policy's git section that pushes are refused by, sorted.
func Keys() (all []string) {
	for key := range advice {
		if key != "" {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

const readingOnly = "this sandbox only reads from this repository"

// ReadingOnly says so to a client that is about to push, before it has named a ref.
func ReadingOnly() string { return readingOnly + " [push]; " + advice["push"] }

// Explain returns the whole of a refusal in one line: what is refused, why, by which key, and what to do.
func (r Ruling) Explain() string {
	said := strings.TrimPrefix(r.Update.Ref, heads)
	switch {
	case r.Update.Deletes() && !r.Update.Creates():
		said += fmt.Sprintf(" (deletion of %.12s)", r.Update.Old)
	case IsObjectID(r.Update.New):
		said += fmt.Sprintf(" (%.12s)", r.Update.New)
	}
	said += ": " + r.Reason
	switch what, known := advice[r.Key]; {
	case r.Action != Deny || !known || r.Reason == withAnother:
		return said
	case r.Key == "":
		return said + "; " + what
	default:
		return said + " [" + r.Key + "]; " + what
	}
}

// Refused returns the first update that is refused for its own reason.
func (v Verdict) Refused() (first Ruling, refused bool) {
	for _, r := range v.Updates {
		if r.Action == Deny && (!refused || first.Reason == withAnother) {
			first, refused = r, true
		}
	}
	return first, refused
}

const withAnother = "another update of this push is refused"

// Rules of what no policy decides.
const (
	ruleProtocol = "git: protocol"
	ruleContent  = "git: content"
)

// Admit judges a push by its commands and options.
func (p *Policy) Admit(push Push) Verdict {
	v := Verdict{Action: Allow}
	key, whole := p.objection(push)
	many := p.manyRefs(push)
	for _, u := range push.Updates {
		r := p.admit(u, push.Updates)
		switch {
		case whole != "" && r.Action != Deny:
			r.Action, r.Key, r.Reason = Deny, key, whole
		case many != "" && u.Deletes():
			r.hold(Ask, "max_deleted", "+DELETIONS", many)
		}
		v.Updates = append(v.Updates, r)
	}
	if whole != "" || len(push.Updates) == 0 {
		v.Action = Deny
	}
	return v.sum()
}

// sum gives the whole push the strictest decision, and the other updates a reason why they are not forwarded.
func (v Verdict) sum() Verdict {
	for _, r := range v.Updates {
		v.Action = min(v.Action, r.Action)
	}
	if v.Action == Deny {
		for i, r := range v.Updates {
			if r.Action != Deny {
				v.Updates[i].Action, v.Updates[i].Key, v.Updates[i].Reason = Deny, "", withAnother
			}
		}
	}
	return v
}

// objection returns an objection to a push as a whole, or "", and its key.
func (p *Policy) objection(push Push) (key, why string) {
	switch {
	case len(push.Updates) > p.UpdateLimit():
		return "max_updates", fmt.Sprintf("it has %d updates, and a push has %d at most", len(push.Updates),
			p.UpdateLimit())
	case push.Certificate:
		return "", "signed pushes are not passed on; push without --signed"
	case len(push.Options) > 0 && p.Options != Allow:
		return "options", fmt.Sprintf("options of a push, as %s, are not passed on", clean(push.Options[0]))
	case push.Pack > p.PackLimit():
		return "max_pack_mb", fmt.Sprintf("the pack is larger than %s", size(p.PackLimit()))
	}
	return "", ""
}

// manyRefs returns why the deletions of a push are asked about, or "".
func (p *Policy) manyRefs(push Push) string {
	n := 0
	for _, u := range push.Updates {
		if u.Deletes() {
			n++
		}
	}
	if n <= p.DeletionLimit(0) {
		return ""
	}
	return fmt.Sprintf("it deletes %d branches and tags, and more than %d (max_deleted) need approval", n,
		p.DeletionLimit(0))
}

// size formats bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		of   int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.of && n%u.of == 0 {
			return fmt.Sprintf("%d %s", n/u.of, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// admit judges one update by its command alone.
func (p *Policy) admit(u Update, all []Update) Ruling {
	operation := "PUSH"
	if u.Deletes() {
		operation = "DELETE"
	}
	rule := func(a Action, key, reason string) Ruling {
		id := p.ID
		if key == "" && a == Deny {
			id = ruleProtocol
		}
		return Ruling{Update: u, Action: a, Rule: id, Key: key, Reason: reason, Operation: operation}
	}
	switch why := CheckName(u.Ref); {
	case why != "":
		return rule(Deny, "", why)
	case !IsObjectID(u.Old) || !IsObjectID(u.New) || len(u.Old) != len(u.New):
		return rule(Deny, "", "an object id is malformed")
	case u.Creates() && u.Deletes():
		return rule(Deny, "", "it creates and deletes at once")
	case count(all, u.Ref) > 1:
		return rule(Deny, "", "two updates of one ref in one push are a force push")
	case isNever(u.Ref):
		return rule(Deny, "", "no policy opens such refs")
	case has(p.Protected, u.Ref):
		return rule(Deny, "protected", "it is protected")
	}
	action, key, reason := p.Update, "update", "the policy allows no updates"
	if action == Ask {
		reason = "updates need approval"
	}
	switch {
	case p.owns(u.Ref):
		if has(p.Asked, u.Ref) && action > Ask {
			action, key, reason = Ask, "own", "a push to this branch reaches others at once"
		}
	case strings.HasPrefix(u.Ref, tags) && p.Tags > Deny:
		if !u.Creates() {
			return rule(Deny, "tags", "tags are created only")
		}
		if action = min(action, p.Tags); p.Tags == Ask {
			key, reason = "tags", "new tags need approval"
		}
	default:
		return rule(Deny, "push", p.reach())
	}
	if u.Deletes() {
		if action, key, reason = min(action, p.Delete), "delete", "the policy allows no deletion"; action == Ask {
			reason = "deletions need approval"
		}
	}
	if action == Allow {
		key, reason = "", ""
	}
	return rule(action, key, reason)
}

// owns reports whether Push contains a ref; a set of many refs never contains a well-known branch.
func (p *Policy) owns(ref string) bool {
	return slices.ContainsFunc(p.Push, func(r Refs) bool { return r.Has(ref) && !(r.wide() && has(wellKnown, ref)) })
}

// reach describes the refs that may be updated.
func (p *Policy) reach() string {
	var names []string
	for _, r := range p.Push {
		names = append(names, r.String())
	}
	switch {
	case len(names) == 0:
		return readingOnly
	case len(names) > 3:
		names = append(names[:3], "…")
	}
	return "this sandbox pushes to " + strings.Join(names, ", ") + " only"
}

func count(all []Update, ref string) (n int) {
	for _, u := range all {
		if strings.EqualFold(u.Ref, ref) { // on a case-insensitive file system both are one ref
			n++
		}
	}
	return n
}

// Judge judges a push by its commands and the findings.
func (p *Policy) Judge(push Push, facts Facts) Verdict {
	v := p.Admit(push)
	if v.Action == Deny {
		return v
	}
	key, why, warnings := p.contents(facts)
	v.Warnings = warnings
	for i, r := range v.Updates {
		switch {
		case why != "":
			if r.hold(Deny, key, "", why); key == "" {
				r.Rule = ruleContent
			}
		case !r.Update.Deletes():
			r = p.force(r, facts.Ancestry)
			p.unusual(&r, facts)
		}
		v.Updates[i] = r
	}
	return v.sum()
}

// force judges whether an update abandons commits. Unknown ancestry counts as that.
func (p *Policy) force(r Ruling, known map[Update]Ancestry) Ruling {
	a, compared := known[r.Update]
	if r.Update.Deletes() || r.Update.Creates() && !compared || a == Descends {
		return r
	}
	reason := "it would leave commits behind (a force push), which the policy does not allow"
	if a == Unknown {
		reason = "it cannot be shown that it keeps the commits that are there, so it counts as a force push, which the " +
			"policy does not allow"
	}
	if r.Operation = "FORCE"; !r.Update.Creates() {
		reason += fmt.Sprintf("; there is %.12s", r.Update.Old)
	}
	r.hold(p.Force, "force", "", reason)
	return r
}

// unusual holds an update whose commits delete many files, or add what looks like a key.
func (p *Policy) unusual(r *Ruling, facts Facts) {
	if limit := p.DeletionLimit(facts.Files); facts.Deleted > limit {
		r.hold(Ask, "max_deleted", "+DELETIONS", fmt.Sprintf("it deletes %d files, and more than %d (max_deleted) need "+
			"approval", facts.Deleted, limit))
	}
	if i := slices.IndexFunc(facts.Secrets, func(s Found) bool { return s.Known }); i >= 0 {
		r.hold(p.Known, "known_secrets", "+SECRET", facts.Secrets[i].String())
	}
}

func (c Change) String() string {
	if c.Commit == "" {
		return clean(c.Path)
	}
	return fmt.Sprintf("%s of commit %.12s", clean(c.Path), c.Commit)
}

func (f Found) String() string {
	said := fmt.Sprintf("it adds what looks like a secret (%s) in %s, line %d", clean(f.Secret), clean(f.Path), f.Line)
	if f.Commit != "" {
		said += fmt.Sprintf(" of commit %.12s", f.Commit)
	}
	return said
}

// contents returns an objection to the content of a push, or "", its key, and warnings.
func (p *Policy) contents(facts Facts) (key, why string, warnings []string) {
	if len(facts.Defects) > 0 {
		return "", clean(facts.Defects[0]), nil
	}
	var blocked, warned []string
	for _, c := range facts.Changes {
		if c.In(p.blocked()) {
			blocked = append(blocked, c.String())
		} else if c.In(p.Warn) {
			warned = append(warned, c.String())
		}
	}
	if len(warned) > 0 {
		warnings = append(warnings, "it changes "+some(warned)+", which the policy warns of")
	}
	if facts.Unsearched && p.Known < Allow {
		warnings = append(warnings, "it is too large to search all of its files for keys and tokens")
	}
	if len(blocked) > 0 {
		return "files", "it changes " + some(blocked) + ", which the policy does not allow", warnings
	}
	if i := slices.IndexFunc(facts.Secrets, func(s Found) bool { return !s.Known }); i >= 0 {
		return "secrets", facts.Secrets[i].String(), warnings
	}
	return "", "", warnings
}

// Watches reports whether a rule of the policy covers a change.
func (p *Policy) Watches(c Change) bool { return c.In(p.blocked()) || c.In(p.Warn) }

// In reports whether a change affects files of sets. A symlink in place of a parent directory of theirs does too.
func (c Change) In(sets []Files) bool {
	return slices.ContainsFunc(sets, func(f Files) bool {
		return f.Has(c.Path) || (c.Mode == Symlink || c.Mode == Gitlink) && f.below(c.Path)
	})
}

// some returns a few of many names, without repetition.
func some(all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	const few = 3
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}

// clean returns foreign text as one line that is safe for a terminal.
func clean(s string) string {
	const long = 200
	if len(s) > long {
		s = s[:long] + "…"
	}
	quoted := fmt.Sprintf("%q", s)
	if quoted[1:len(quoted)-1] == s {
		return s
	}
	return quoted
}
