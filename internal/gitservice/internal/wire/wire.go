// Package wire owns what git inside a sandbox and the git API outside say to each other: a signed request over HTTP,
// and the frames of its answer. It is pure, and small enough for cove-guest.
//
// A request is signed with the sandbox's own key: HMAC-SHA256 over its method, path, the SHA-256 of its body, its time
// and a nonce, one on each line after the name of this scheme. There is no other scheme, and no way to ask for one.
package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The two requests there are, both by POST.
const (
	CommandPath = "/git/v1/command" // Request → frames
	EditedPath  = "/git/v1/edited"  // Edited → nothing
)

// Headers of a signed request, each exactly once.
const (
	HeaderTime      = "Cove-Time"      // seconds since 1970, decimal
	HeaderNonce     = "Cove-Nonce"     // NonceSize bytes, hex
	HeaderSignature = "Cove-Signature" // hex
)

const (
	KeySize   = 32 // bytes
	NonceSize = 16 // bytes

	MaxInput = 4 << 20 // bytes of standard input
	MaxBody  = 8 << 20 // bytes of a request
	MaxText  = 1 << 20 // bytes of a text to edit
)

// Where git inside finds what it needs: the directory of what only the
// sandbox's user may read, and where the API listens on its loopback.
const (
	Place    = "/run/cove/git"
	KeyFile  = Place + "/key" // hex
	Programs = Place + "/bin" // has git
	Port     = 3129
)

// Where the editor of the git that runs beside a sandbox finds who can edit, on its own loopback: a frame with an Edit
// is answered by one with an Edited. The variable has its id.
const (
	EditPort     = 3130
	EditVariable = "COVE_GIT_EDIT"
)

// Request asks for a command.
type Request struct {
	Args   []string          `json:"args"` // without "git"
	Dir    string            `json:"dir"`
	Env    map[string]string `json:"env,omitempty"`
	Config [][2]string       `json:"config,omitempty"` // the user's own, as far as it is harmless
	Stdin  []byte            `json:"stdin,omitempty"`
	Color  bool              `json:"color,omitempty"`    // its output is for a terminal
	Paged  bool              `json:"paged,omitempty"`    // and goes through a pager
	Speaks bool              `json:"progress,omitempty"` // its errors are for a terminal
	Edits  bool              `json:"edits,omitempty"`    // a text can be edited
}

// Edited answers FrameEdit.
type Edited struct {
	ID   string `json:"id"`
	OK   bool   `json:"ok"` // the editor ended well
	Text []byte `json:"text,omitempty"`
}

// Edit is a text to edit.
type Edit struct {
	ID   string `json:"id"`
	Name string `json:"name"` // of the file, for the editor to know what it is
	Text []byte `json:"text"`
}

// Exit is how a command ended.
type Exit struct {
	Code int `json:"code"`
}

// Sign is the signature of a request.
func Sign(key []byte, method, path string, body []byte, time, nonce string) string {
	sum := sha256.Sum256(body)
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, strings.Join([]string{"cove-git-v1", method, path, hex.EncodeToString(sum[:]), time, nonce}, "\n"))
	return hex.EncodeToString(mac.Sum(nil))
}

// Signed reports, in a time that does not depend on where they differ, whether a signature is that of a request.
func Signed(key []byte, method, path string, body []byte, time, nonce, signature string) bool {
	return hmac.Equal([]byte(signature), []byte(Sign(key, method, path, body, time, nonce)))
}

// FrameType says what a frame of an answer is.
type FrameType byte

const (
	FrameStdout FrameType = 1 // bytes
	FrameStderr FrameType = 2 // bytes
	FrameEdit   FrameType = 3 // Edit
	FrameExit   FrameType = 4 // Exit, the last
)

// MaxFrame is how many bytes a frame may have.
const MaxFrame = 2 << 20

// WriteFrame writes one: its type, the length of what follows in 4 bytes, big end first, and that.
func WriteFrame(w io.Writer, t FrameType, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("a frame of %d bytes is too large", len(payload))
	}
	b := make([]byte, 5, 5+len(payload))
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// WriteJSON writes one whose payload is JSON.
func WriteJSON(w io.Writer, t FrameType, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFrame(w, t, payload)
}

// ReadFrame reads one. The error is io.EOF between frames, and io.ErrUnexpectedEOF within one.
func ReadFrame(r io.Reader) (FrameType, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, errors.New("a frame is too large")
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return FrameType(head[0]), payload, nil
}
