package smart

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/pktline"
)

// MaxAsked bounds a request for refs or objects, in bytes: each repeats all earlier ones, since HTTP is stateless.
const MaxAsked = 16 << 20

const maxAskedLines = 400_000

// Asked is the content of a request of kind UploadPack.
type Asked struct {
	Refs  bool     // a list of refs (version 2), and nothing else
	Wants []string // object ids
	Names []string // refs that are wanted, or that bound the history
}

// ParseAsked parses the body of a request of kind UploadPack, in the version in which it is forwarded. Errors:
// InvalidArgument for malformed requests, Forbidden for requests that cannot be judged, TooLarge.
func ParseAsked(src io.Reader, v Version) (Asked, error) {
	r := pktline.NewReader(src, MaxAsked, maxAskedLines)
	if v == 2 {
		return parseCommand(r)
	}
	return parseWants(r)
}

func bad(format string, args ...any) error { return cove.Errorf(cove.InvalidArgument, format, args...) }

// parseWants parses a request of version 0 or 1: wants, and after a flush haves.
func parseWants(r *pktline.Reader) (Asked, error) {
	var a Asked
	section := a.wantLine
	for lines := 0; ; lines++ {
		p, err := r.Next()
		switch {
		case err == io.EOF:
			return a, nil
		case err != nil:
			return a, broken(err)
		case p.Kind == pktline.Flush:
			section = haveLine
			continue
		case p.Kind != pktline.Data:
			return a, bad("a request of this version of git's protocol has no sections")
		}
		if err := section(p.Text(), lines == 0); err != nil {
			return a, err
		}
	}
}

func broken(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return bad("the request broke off")
	}
	return err
}

func (a *Asked) wantLine(line string, first bool) error {
	verb, rest, _ := strings.Cut(line, " ")
	if verb == "want" && first {
		var caps string
		rest, caps, _ = strings.Cut(rest, " ")
		for c := range strings.FieldsSeq(caps) {
			if !keeps(append(kept[Fetch], "session-id="), c) {
				return bad("the capability %.100q is not one that was offered", c)
			}
		}
	}
	return a.argument(verb, rest)
}

func haveLine(line string, _ bool) error {
	if id, ok := strings.CutPrefix(line, "have "); ok && isID(id) || line == "done" {
		return nil
	}
	return bad("%.100q is out of place", line)
}

// argument parses arguments common to both versions.
func (a *Asked) argument(verb, rest string) error {
	switch verb {
	case "want":
		if !isID(rest) {
			return bad("%.100q is no object id", rest)
		}
		a.Wants = append(a.Wants, rest)
		return nil
	case "shallow":
		if isID(rest) {
			return nil
		}
	case "deepen", "deepen-since":
		if _, err := strconv.ParseInt(rest, 10, 64); err == nil {
			return nil
		}
	case "deepen-not":
		a.Names = append(a.Names, rest)
		return nil
	case "filter":
		return checkFilter(rest)
	}
	return bad("%.100q is nothing that was offered", verb+" "+rest)
}

// checkFilter permits filters by the kind of objects. A filter that is itself an object of the server (sparse:oid)
// would read that object.
func checkFilter(spec string) error {
	for part := range strings.SplitSeq(strings.TrimPrefix(spec, "combine:"), "+") {
		kind, value, _ := strings.Cut(strings.ToLower(part), ":")
		switch kind {
		case "blob":
			if limit, ok := strings.CutPrefix(value, "limit="); value == "none" ||
				ok && strings.Trim(limit, "0123456789kmg") == "" {
				continue
			}
		case "tree":
			if strings.Trim(value, "0123456789") == "" && value != "" {
				continue
			}
		case "object":
			if slices.Contains([]string{"type=blob", "type=tree", "type=commit", "type=tag"}, value) {
				continue
			}
		}
		return cove.Errorf(cove.Forbidden, "the filter %.100q is not passed on",
			spec).WithHint("there are blob:none, blob:limit=SIZE, tree:DEPTH and object:type=TYPE")
	}
	return nil
}

// parseCommand parses a request of version 2: one command.
func parseCommand(r *pktline.Reader) (Asked, error) {
	var a Asked
	command, arguments := "", false
	for {
		p, err := r.Next()
		switch {
		case err != nil:
			return a, broken(err)
		case p.Kind == pktline.Flush:
			if command == "" {
				return a, bad("the request has no command")
			}
			return a, atEnd(r)
		case p.Kind == pktline.Delim && command != "" && !arguments:
			arguments = true
			continue
		case p.Kind != pktline.Data:
			return a, bad("the request has a section too many")
		}
		text := p.Text()
		switch name, isCommand := strings.CutPrefix(text, "command="); {
		case arguments && command == "fetch":
			err = a.fetchArgument(text)
		case arguments:
			err = listArgument(text)
		case isCommand && command == "" && (name == "fetch" || name == "ls-refs"):
			command, a.Refs = name, name == "ls-refs"
		case isCommand:
			err = bad("the command %.100q is not one that was offered", name)
		case !strings.HasPrefix(text, "agent=") && !strings.HasPrefix(text, "object-format=") &&
			!strings.HasPrefix(text, "session-id="):
			err = bad("the capability %.100q is not one that was offered", text)
		}
		if err != nil {
			return a, err
		}
	}
}

// atEnd refuses bytes after a complete request: a server could read them as another.
func atEnd(r *pktline.Reader) error {
	if _, err := r.Next(); err != io.EOF {
		return bad("the request goes on beyond its end")
	}
	return nil
}

func (a *Asked) fetchArgument(text string) error {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "have":
		return haveLine(text, false)
	case "want-ref":
		a.Names = append(a.Names, rest)
		return nil
	case "done", "thin-pack", "no-progress", "include-tag", "ofs-delta", "deepen-relative", "wait-for-done",
		"sideband-all":
		if rest == "" {
			return nil
		}
	}
	return a.argument(verb, rest)
}

func listArgument(text string) error {
	if text == "peel" || text == "symrefs" || text == "unborn" || strings.HasPrefix(text, "ref-prefix ") {
		return nil
	}
	return bad("%.100q is nothing that was offered", text)
}

// WithoutTags returns the body of a request that ParseAsked has accepted, without the option include-tag, which makes a
// server send tags of sent objects unrequested.
func WithoutTags(body []byte, v Version) ([]byte, error) {
	const word = "include-tag"
	var b bytes.Buffer
	r, w := pktline.NewReader(bytes.NewReader(body), MaxAsked, maxAskedLines), pktline.NewWriter(&b)
	for first := true; ; first = false {
		p, err := r.Next()
		switch {
		case err == io.EOF:
			return b.Bytes(), nil
		case err != nil:
			return nil, broken(err)
		case p.Kind == pktline.Data && v == 2 && p.Text() == word:
			continue
		case p.Kind == pktline.Data && v != 2 && first:
			fields := slices.DeleteFunc(strings.Split(p.Text(), " "), func(f string) bool { return f == word })
			err = w.Text("%s", strings.Join(fields, " "))
		default:
			err = w.Packet(p)
		}
		if err != nil {
			return nil, err
		}
	}
}
