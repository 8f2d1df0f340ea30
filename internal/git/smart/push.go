package smart

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cove-sandbox/cove/internal/git/pktline"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

// Limits of the part of a push before its pack.
const (
	maxPushHead  = 4 << 20
	maxPushLines = 20_000
)

// Commands is the part of a push before its pack.
type Commands struct {
	policy.Push
	Atomic bool
	Probe  bool // no commands: a client tests its access

	report, reportV2, bands bool
}

// offered are the capabilities that a client may use if they were offered.
var offered = append(slices.Clone(kept[Push]), "push-options", "session-id=")

// ParseCommands parses the part before the pack, and leaves src at the pack. Errors: InvalidArgument for malformed
// requests, TooLarge.
func ParseCommands(src io.Reader) (Commands, error) {
	var c Commands
	r := pktline.NewReader(src, maxPushHead, maxPushLines)
	options := false
	for lines := 0; ; lines++ {
		p, err := r.Next()
		switch {
		case err == io.EOF && lines == 0:
			return c, bad("the push is empty")
		case err != nil:
			return c, broken(err)
		case p.Kind == pktline.Flush && options:
			return c, c.options(r)
		case p.Kind == pktline.Flush:
			c.Probe = lines == 0
			return c, nil
		case p.Kind != pktline.Data:
			return c, bad("a push has no sections")
		}
		line := p.Text()
		if len(c.Updates) == 0 {
			var caps string
			var ok bool
			if line, caps, ok = strings.Cut(line, "\x00"); ok {
				if options, err = c.read(caps); err != nil {
					return c, err
				}
			}
		}
		if done, err := c.command(line); done || err != nil {
			return c, err
		}
	}
}

// read parses the capabilities that a client uses.
func (c *Commands) read(caps string) (options bool, err error) {
	for name := range strings.FieldsSeq(caps) {
		switch name {
		case "report-status":
			c.report = true
		case "report-status-v2":
			c.report, c.reportV2 = true, true
		case "side-band-64k":
			c.bands = true
		case "atomic":
			c.Atomic = true
		case "push-options":
			options = true
		}
		if !keeps(offered, name) {
			return false, bad("the capability %.100q is not one that was offered", name)
		}
	}
	return options, nil
}

// command parses one line. done ends the parsing.
func (c *Commands) command(line string) (done bool, err error) {
	switch {
	case strings.HasPrefix(line, "push-cert"):
		c.Certificate = true
		return true, nil
	case strings.HasPrefix(line, "shallow "):
		id := line[len("shallow "):]
		if !isID(id) {
			return false, bad("%.100q is no object id", id)
		}
		c.Shallow = append(c.Shallow, id)
		return false, nil
	}
	fields := strings.SplitN(line, " ", 3)
	if len(fields) != 3 {
		return false, bad("%.100q is no command of a push", line)
	}
	c.Updates = append(c.Updates, policy.Update{Old: fields[0], New: fields[1], Ref: fields[2]})
	return false, nil
}

func (c *Commands) options(r *pktline.Reader) error {
	for {
		p, err := r.Next()
		switch {
		case err != nil:
			return broken(err)
		case p.Kind == pktline.Flush:
			return nil
		case p.Kind != pktline.Data:
			return bad("options of a push have no sections")
		}
		c.Options = append(c.Options, p.Text())
	}
}

// HasPack reports whether a pack follows: deletions need none.
func (c *Commands) HasPack() bool {
	return slices.ContainsFunc(c.Updates, func(u policy.Update) bool { return !u.Deletes() })
}

// CanReport reports whether the client reads the outcome of each ref, or at least messages; otherwise a refusal must be
// an HTTP error.
func (c *Commands) CanReport() bool { return c.report || c.bands }

// PushResult is the content type of an answer to a push.
const PushResult = "application/x-git-receive-pack-result"

// Refuse returns the answer to a refused push: each ref with its reason, and lines that git shows after "remote: ".
func (c *Commands) Refuse(v policy.Verdict, lines ...string) []byte {
	var report, answer bytes.Buffer
	if c.report {
		w := pktline.NewWriter(&report)
		w.Text("unpack ok")
		for _, r := range v.Updates {
			w.Text("ng %s %s", shown(r.Update.Ref), shown(r.Reason))
		}
		w.Flush()
	}
	if !c.bands {
		return report.Bytes()
	}
	w := pktline.NewWriter(&answer)
	for _, line := range lines {
		fmt.Fprintf(w.Band(pktline.Progress, pktline.MaxBand), "%s\n", shown(line))
	}
	w.Band(pktline.Payload, pktline.MaxBand).Write(report.Bytes())
	w.Flush()
	return answer.Bytes()
}

// maxShown bounds one line of an answer.
const maxShown = 1000

// shown returns one printable line of foreign text.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '\ufffd' {
			return '?'
		}
		return r
	}, s)
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "?")
	}
	return s
}

// RefusedBy returns the answer to a push in place of a server's packet ERR with the message said.
func (c *Commands) RefusedBy(said string) []byte {
	if !c.bands {
		return errPacket(said)
	}
	var b bytes.Buffer
	w := pktline.NewWriter(&b)
	w.Band(pktline.Payload, pktline.MaxBand).Write(errPacket(said)) // where git reads the report, and reads ERR
	w.Flush()
	return b.Bytes()
}

// RefusalTo returns RefusedBy for the push that is about to be read, whose first line states what the client reads. It
// consumes nothing.
func RefusalTo(push *bufio.Reader) func(said string) []byte {
	c := &Commands{}
	if size, err := push.Peek(4); err == nil {
		n, _ := strconv.ParseUint(string(size), 16, 16)
		line, _ := push.Peek(int(min(n, pktline.MaxLine)))
		_, caps, _ := strings.Cut(string(line), "\x00")
		c.bands = slices.Contains(strings.Fields(caps), "side-band-64k")
	}
	return c.RefusedBy
}

// Warn prepends lines to a server's answer to a push, if the client supports side-bands.
func (c *Commands) Warn(answer io.Reader, lines ...string) io.Reader {
	if !c.bands || len(lines) == 0 {
		return answer
	}
	var b bytes.Buffer
	w := pktline.NewWriter(&b).Band(pktline.Progress, pktline.MaxBand)
	for _, line := range lines {
		fmt.Fprintf(w, "%s\n", shown(line))
	}
	return io.MultiReader(&b, answer)
}

// maxReport bounds a server's report, in bytes.
const maxReport = 4 << 20

// Report returns the updates of a forwarded push that the server reports as made. A malformed report counts as none.
func (c *Commands) Report(answer io.Reader) (made []policy.Update, err error) {
	if !c.report {
		return nil, nil
	}
	r := pktline.NewReader(answer, maxReport, maxPushLines)
	if c.bands {
		r = pktline.NewReader(pktline.NewDemux(r, nil), maxReport, maxPushLines)
	}
	for {
		p, err := r.Next()
		if err != nil || p.Kind == pktline.Flush {
			if err == io.EOF {
				err = nil
			}
			return made, err
		}
		ref, ok := strings.CutPrefix(p.Text(), "ok ")
		if !ok {
			continue
		}
		if i := slices.IndexFunc(c.Updates, func(u policy.Update) bool { return u.Ref == ref }); i >= 0 {
			made = append(made, c.Updates[i])
		}
	}
}
