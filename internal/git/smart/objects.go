package smart

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/cove-sandbox/cove/internal/git/pktline"
)

// FetchQuery is a request of the gateway itself to a server.
type FetchQuery struct {
	Wants, Haves []string
	Trees        bool // the trees of Wants without blobs; otherwise commits, back to Haves
	All          bool // with trees
	Objects      bool // Wants alone, of whatever kind
	Whole        bool // with all objects, as the server cannot filter
	SHA256       bool
}

// FetchRequest returns the body of the request, in version 2.
func FetchRequest(q FetchQuery) []byte {
	var b bytes.Buffer
	w := pktline.NewWriter(&b)
	w.Text("command=fetch")
	if q.SHA256 {
		w.Text("object-format=sha256")
	}
	w.Delim()
	w.Text("no-progress")
	w.Text("ofs-delta")
	if q.Trees {
		w.Text("deepen 1")
	}
	switch {
	case q.Whole, q.Objects:
	case q.Trees || q.All:
		w.Text("filter blob:none")
	default:
		w.Text("filter tree:0")
	}
	for _, id := range q.Wants {
		w.Text("want %s", id)
	}
	for _, id := range q.Haves {
		w.Text("have %s", id)
	}
	w.Text("done")
	w.Flush()
	return b.Bytes()
}

// Features describes a server's first answer.
type Features struct {
	Two    bool     // version 2; otherwise the answer lists refs
	Fetch  []string // features of fetches; of version 2
	SHA256 bool     // the object ids are SHA-256; of version 2
}

// ParseFeatures parses a server's first answer. Refs are left unread. Errors: Unavailable with the server's message.
func ParseFeatures(list io.Reader) (f Features, err error) {
	r := pktline.NewReader(list, 1<<20, 100)
	for n := 0; ; n++ {
		p, err := r.Next()
		said, refused := refusal(p)
		switch text := p.Text(); {
		case err != nil:
			return Features{}, err
		case refused:
			return Features{}, Refused(said)
		case text == "version 2":
			f.Two = true
		case f.Two && p.Kind == pktline.Flush:
			return f, nil
		case f.Two && strings.HasPrefix(text, "fetch="):
			f.Fetch = strings.Fields(text[len("fetch="):])
		case f.Two && text == "object-format=sha256":
			f.SHA256 = true
		case !f.Two && n == 2: // the service, a flush, and no version
			return Features{}, nil
		}
	}
}

// Limits of one answer with a pack.
const (
	maxPack      = 16 << 30
	maxPackLines = 1 << 24
)

// ParseFetched parses the answer: a pack, and its commits with missing parents. Errors: Unavailable when the server
// lacks a wanted object, or its answer is malformed.
func ParseFetched(answer io.Reader) (pack io.Reader, shallow []string, err error) {
	r := pktline.NewReader(answer, maxPack, maxPackLines)
	section := ""
	for {
		p, err := r.Next()
		if err != nil {
			return nil, nil, malformed("it broke off")
		}
		text := p.Text()
		said, refused := refusal(p)
		switch {
		case p.Kind == pktline.Delim:
			section = ""
		case p.Kind != pktline.Data:
			return nil, nil, malformed("it has no pack")
		case refused:
			return nil, nil, Refused(said)
		case section == "" && text == "packfile":
			return pktline.NewDemux(r, nil), shallow, nil
		case section == "":
			section = text
		case section == "shallow-info":
			id, ok := strings.CutPrefix(text, "shallow ")
			if !ok || !isID(id) || len(shallow) > maxPushLines {
				return nil, nil, malformed("it cuts the history without a request")
			}
			shallow = append(shallow, id)
		}
	}
}

// ParseBatch parses the operation on large files (LFS): "download" or "upload". Errors: InvalidArgument.
func ParseBatch(body []byte) (operation string, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", bad("it is no JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", bad("it is no JSON object")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", bad("it is no JSON object")
		}
		// some parsers ignore case, and take the first or the last
		if name, _ := key.(string); strings.EqualFold(name, "operation") {
			if operation != "" || json.Unmarshal(value, &operation) != nil || operation == "" || name != "operation" {
				return "", bad("it says not one thing that is to be done")
			}
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return "", bad("it is no JSON object")
	}
	if _, err := d.Token(); err != io.EOF {
		return "", bad("something follows the JSON object")
	}
	return operation, nil
}
