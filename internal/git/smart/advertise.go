package smart

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/pktline"
)

// Limits of one list of refs, above the largest repositories.
const (
	maxListBytes = 64 << 20
	maxListLines = 500_000
)

// View is a sandbox's view of a repository.
type View struct {
	// Sees reports whether a ref is visible. head is the target of HEAD, or "".
	Sees func(ref, head string) bool
	// Head is the known target of HEAD; not every list states it.
	Head string
	// Options permits push options.
	Options bool
	// Shown receives every object id in a list, with its ref: the ref's own id, or the target of its tag. It may be
	// nil.
	Shown func(ref, id string)
	// Found receives the target of HEAD, if a list states it. It may be nil.
	Found func(head string)
}

func (v *View) found(head string) {
	if v.Head = head; v.Found != nil {
		v.Found(head)
	}
}

func (v *View) show(ref, id string) {
	if v.Shown != nil {
		v.Shown(ref, id)
	}
}

// List reads a list of refs or capabilities, rewritten by step.
type List struct {
	in      *pktline.Reader
	out     bytes.Buffer
	w       *pktline.Writer
	step    func(pktline.Packet) error
	end     func() error // called before the end of the stream; nil: the list has ended
	err     error
	refused string
}

func newList(src io.Reader) *List {
	f := &List{in: pktline.NewReader(src, maxListBytes, maxListLines)}
	f.w = pktline.NewWriter(&f.out)
	return f
}

// Refused returns the message with which the server ended the list that has been read, or "". It is one printable
// line.
func (f *List) Refused() string { return f.refused }

// Read implements io.Reader.
func (f *List) Read(p []byte) (int, error) {
	for f.out.Len() == 0 {
		if f.err != nil {
			return 0, f.err
		}
		packet, err := f.in.Next()
		if said, is := refusal(packet); err == nil && is && f.end != nil {
			f.refused = said
			if err = f.w.Text("ERR %s", said); err == nil {
				err = io.EOF
			}
		} else if err == nil {
			err = f.step(packet)
		} else if err == io.EOF && f.end != nil {
			if bad := f.end(); bad != nil {
				err = bad
			}
		}
		f.err = err
	}
	return f.out.Read(p)
}

func malformed(what string) error {
	return cove.Errorf(cove.Unavailable, "the git server's answer makes no sense: %s", what)
}

// Advertisement filters the answer to a request of kind Advertise. A server's error message (a packet ERR) is kept, and
// ends it.
func Advertisement(src io.Reader, s Service, v View) *List {
	f := newList(src)
	a := &advertisement{f: f, service: s, view: &v}
	f.step, f.end = a.first, func() error { return io.ErrUnexpectedEOF }
	return f
}

// advertisement filters a list of refs of version 0 or 1, or of capabilities of version 2.
type advertisement struct {
	f       *List
	service Service
	view    *View
	caps    []string
	begun   bool // the first ref has been read
	written bool // a ref has been written
	idSize  int
}

// first reads "# service=…", with which HTTP answers begin; some servers omit it before version 2.
func (a *advertisement) first(p pktline.Packet) error {
	if p.Kind == pktline.Data && p.Text() == "version 2" {
		return a.version(p)
	}
	if p.Kind != pktline.Data || p.Text() != "# service="+string(a.service) {
		return malformed("it does not name the service")
	}
	a.f.step = func(p pktline.Packet) error {
		if p.Kind != pktline.Flush {
			return malformed("more than the service is named")
		}
		a.f.step = a.version
		return a.f.w.Flush()
	}
	return a.f.w.Packet(p)
}

func (a *advertisement) version(p pktline.Packet) error {
	a.f.step = a.ref
	switch text := p.Text(); {
	case p.Kind != pktline.Data:
		return a.ref(p)
	case text == "version 1":
		return a.f.w.Packet(p)
	case text == "version 2" && a.service == Fetch:
		a.f.step = a.capability
		return a.f.w.Packet(p)
	case strings.HasPrefix(text, "version "):
		return malformed("it is of a version that was not requested")
	}
	return a.ref(p)
}

// ended is the step after the end of a list, where no packet may follow.
func (a *advertisement) ended(pktline.Packet) error { return malformed("it goes on beyond its end") }

// ref reads one ref of version 0 or 1.
func (a *advertisement) ref(p pktline.Packet) error {
	if p.Kind == pktline.Flush {
		if !a.begun {
			return malformed("it has no capabilities")
		}
		a.f.step, a.f.end = a.ended, nil
		if !a.written {
			if err := a.write(strings.Repeat("0", a.idSize), "capabilities^{}"); err != nil {
				return err
			}
		}
		return a.f.w.Flush()
	}
	if p.Kind != pktline.Data {
		return malformed("it has sections")
	}
	text := p.Text()
	if id, ok := strings.CutPrefix(text, "shallow "); ok && isID(id) {
		return a.f.w.Packet(p)
	}
	if !a.begun {
		a.begun = true
		line, caps, ok := strings.Cut(text, "\x00")
		if !ok {
			return malformed("it has no capabilities")
		}
		a.read(caps)
		text = line
	}
	id, name, ok := strings.Cut(text, " ")
	if !ok || !isID(id) || a.idSize != 0 && len(id) != a.idSize {
		return malformed("a ref of it has no object id")
	}
	a.idSize = len(id)
	ref, _ := strings.CutSuffix(name, "^{}")
	if name == "capabilities^{}" || !a.view.Sees(ref, a.view.Head) {
		return nil
	}
	a.view.show(ref, id)
	return a.write(id, name)
}

func (a *advertisement) write(id, name string) error {
	if a.written {
		return a.f.w.Text("%s %s", id, name)
	}
	a.written = true
	caps := a.caps
	if !a.view.Sees("HEAD", a.view.Head) {
		caps = slices.DeleteFunc(slices.Clone(caps), func(c string) bool { return strings.HasPrefix(c, "symref=") })
	}
	return a.f.w.Text("%s %s\x00%s", id, name, strings.Join(caps, " "))
}

// kept are capabilities of version 0 and 1 that pass; a final "=" permits any value.
var kept = map[Service][]string{
	Fetch: {"multi_ack", "multi_ack_detailed", "no-done", "thin-pack", "side-band", "side-band-64k", "ofs-delta",
		"shallow", "deepen-since",
		"deepen-not", "deepen-relative", "no-progress", "include-tag", "filter", "allow-tip-sha1-in-want",
		"allow-reachable-sha1-in-want",
		"object-format=", "agent="},
	Push: {"report-status", "report-status-v2", "delete-refs", "quiet", "atomic", "ofs-delta", "side-band-64k", "no-thin",
		"object-format=", "agent="},
}

// read keeps the capabilities that can be judged. It disables thin packs for pushes: their deltas need objects that
// only the server has, so they could not be inspected here.
func (a *advertisement) read(caps string) {
	for c := range strings.FieldsSeq(caps) {
		if target, ok := strings.CutPrefix(c, "symref=HEAD:"); ok && a.service == Fetch {
			a.view.found(target)
			a.caps = append(a.caps, c)
			continue
		}
		if keeps(kept[a.service], c) || c == "push-options" && a.service == Push && a.view.Options {
			a.caps = append(a.caps, c)
		}
	}
	if a.service == Push && !slices.Contains(a.caps, "no-thin") {
		a.caps = append(a.caps, "no-thin")
	}
}

func keeps(list []string, c string) bool {
	name, _, valued := strings.Cut(c, "=")
	if valued {
		name += "="
	}
	return slices.Contains(list, name)
}

// features are the permitted values of "fetch=" in version 2.
var features = []string{"shallow", "wait-for-done", "filter", "ref-in-want", "sideband-all"}

// capability reads one capability of version 2.
func (a *advertisement) capability(p pktline.Packet) error {
	switch p.Kind {
	case pktline.Flush:
		a.f.step, a.f.end = a.ended, nil
		return a.f.w.Flush()
	case pktline.Data:
	default:
		return malformed("it has sections")
	}
	name, value, _ := strings.Cut(p.Text(), "=")
	switch name {
	case "agent", "object-format":
		return a.f.w.Packet(p)
	case "ls-refs":
		if slices.Contains(strings.Fields(value), "unborn") {
			return a.f.w.Text("ls-refs=unborn")
		}
		return a.f.w.Text("ls-refs")
	case "fetch":
		values := slices.DeleteFunc(strings.Fields(value), func(f string) bool { return !slices.Contains(features, f) })
		if len(values) == 0 {
			return a.f.w.Text("fetch")
		}
		return a.f.w.Text("fetch=%s", strings.Join(values, " "))
	}
	return nil // unjudged operations: object-info, bundle-uri, …
}

// Refs filters the answer to ls-refs of version 2, like Advertisement.
func Refs(src io.Reader, v View) *List {
	f := newList(src)
	l := &listing{f: f, view: &v}
	f.step, f.end = l.ref, func() error { return io.ErrUnexpectedEOF }
	return f
}

type listing struct {
	f    *List
	view *View
}

func (l *listing) ref(p pktline.Packet) error {
	switch p.Kind {
	case pktline.Flush:
		l.f.step, l.f.end = func(p pktline.Packet) error {
			if p.Kind == pktline.ResponseEnd {
				return nil // here connections end answers
			}
			return malformed("it goes on beyond its end")
		}, nil
		return l.f.w.Flush()
	case pktline.Data:
	default:
		return malformed("it has sections")
	}
	fields := strings.Split(p.Text(), " ")
	if len(fields) < 2 || fields[0] != "unborn" && !isID(fields[0]) {
		return malformed("a ref of it has no object id")
	}
	ids := []string{fields[0]}
	for _, attribute := range fields[2:] {
		if target, ok := strings.CutPrefix(attribute, "symref-target:"); ok {
			if fields[1] == "HEAD" {
				l.view.found(target)
			}
			if !l.view.Sees(target, l.view.Head) {
				return nil
			}
		} else if id, ok := strings.CutPrefix(attribute, "peeled:"); ok && isID(id) {
			ids = append(ids, id)
		} else {
			return malformed("a ref of it has an attribute that was not requested")
		}
	}
	if !l.view.Sees(fields[1], l.view.Head) {
		return nil
	}
	for _, id := range ids {
		if id != "unborn" {
			l.view.show(fields[1], id)
		}
	}
	return l.f.w.Packet(p)
}

// isID reports whether s is an object id in git's form.
func isID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
