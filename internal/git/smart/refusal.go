package smart

import (
	"bytes"
	"io"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/pktline"
)

// errPrefix begins a packet in which a server says why it does not answer (gitprotocol-pack).
const errPrefix = "ERR "

// refusal returns the message of a packet ERR as one printable line.
func refusal(p pktline.Packet) (said string, is bool) {
	text, is := strings.CutPrefix(string(p.Data), errPrefix)
	return shown(strings.Join(strings.Fields(text), " ")), is
}

func errPacket(said string) []byte {
	var b bytes.Buffer
	pktline.NewWriter(&b).Text("%s%s", errPrefix, said)
	return b.Bytes()
}

// Refused is the error of a server that answers with the message said. Errors: Unavailable.
func Refused(said string) error {
	return cove.Errorf(cove.Unavailable, "the git server says: %s", said)
}

// Result reads the answer to a fetch or a push, which may be a packet ERR alone.
type Result struct {
	src     io.Reader
	form    func(said string) []byte
	looked  bool
	refused string
}

// NewResult returns a reader of src. form renders the message of a packet ERR; nil renders such a packet.
func NewResult(src io.Reader, form func(said string) []byte) *Result {
	if form == nil {
		form = errPacket
	}
	return &Result{src: src, form: form}
}

// Refused returns the server's message, or "". It is one printable line.
func (a *Result) Refused() string { return a.refused }

// Read implements io.Reader.
func (a *Result) Read(p []byte) (int, error) {
	if !a.looked {
		a.looked = true
		if err := a.look(); err != nil {
			return 0, err
		}
	}
	return a.src.Read(p)
}

// look reads the first packet if it is an ERR.
func (a *Result) look() error {
	head := make([]byte, 4+len(errPrefix))
	n, err := io.ReadFull(a.src, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	a.src = io.MultiReader(bytes.NewReader(head[:n]), a.src)
	if string(head[4:]) != errPrefix {
		return nil
	}
	packet, err := pktline.NewReader(a.src, pktline.MaxLine, 1).Next()
	if err != nil {
		return err
	}
	a.refused, _ = refusal(packet)
	a.src = bytes.NewReader(a.form(a.refused))
	return nil
}
