package worker

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/model"
	"github.com/cove-sandbox/cove/internal/worker/tools"
)

type session struct {
	Version  int             `json:"version"`
	ID       string          `json:"id"`
	Dir      string          `json:"dir"` // the task's
	Messages []model.Message `json:"messages"`
	Todo     []tools.Item    `json:"todo,omitempty"`
	path     string          // empty: not stored
}

const (
	sessionVersion = 1
	maxSession     = 256 << 20 // bytes
)

// sessionsDir returns the directory of sessions: below the home, so that they live as long as the sandbox.
func sessionsDir(getenv func(string) string) (string, error) {
	state := getenv("XDG_STATE_HOME")
	if state == "" {
		home := getenv("HOME")
		if home == "" {
			return "", cove.Errorf(cove.InvalidArgument, "there is no home: HOME is not set")
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "cove-worker"), nil
}

func newSession(dir, work string) *session {
	var id [8]byte
	rand.Read(id[:])
	s := &session{Version: sessionVersion, ID: hex.EncodeToString(id[:]), Dir: work}
	if dir != "" {
		s.path = filepath.Join(dir, s.ID+".json")
	}
	return s
}

var sessionID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// openSession returns a session by its id, or the last one of a directory. Errors: NotFound, InvalidArgument, Corrupt.
func openSession(dir, id, work string) (*session, error) {
	if id != lastSession {
		if !sessionID.MatchString(id) {
			return nil, cove.Errorf(cove.InvalidArgument, "%.80q is no id of a session",
				id).WithHint("it is session_id of the messages")
		}
		return readSession(filepath.Join(dir, id+".json"))
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	infos := map[string]int64{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() &&
			sessionID.MatchString(strings.TrimSuffix(e.Name(), ".json")) {
			infos[e.Name()] = info.ModTime().UnixNano()
		}
	}
	names := slices.SortedFunc(maps.Keys(infos), func(a, b string) int { return cmp.Compare(infos[b], infos[a]) })
	for _, name := range names {
		if s, err := readSession(filepath.Join(dir, name)); err == nil && s.Dir == work {
			return s, nil
		}
	}
	return nil, cove.Errorf(cove.NotFound, "there is no session of %s to go on with", work)
}

func readSession(path string) (*session, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no session %s", strings.TrimSuffix(filepath.Base(path), ".json"))
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSession {
		return nil, cove.Errorf(cove.Corrupt, "the session %s has %d bytes", path, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &session{path: path}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, cove.Errorf(cove.Corrupt, "the session %s cannot be read: %w", path, err)
	}
	if s.Version != sessionVersion {
		return nil, cove.Errorf(cove.Corrupt, "the session %s is of version %d, and this is of %d", path, s.Version,
			sessionVersion)
	}
	s.Messages = mend(s.Messages)
	return s, nil
}

func (s *session) save() error {
	if s.path == "" {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(s.path, data, 0o600)
}

func (s *session) prompt(text string) {
	part := model.Part{Kind: model.Text, Text: text}
	if n := len(s.Messages); n > 0 && s.Messages[n-1].Role == model.User {
		last := &s.Messages[n-1]
		last.Parts = append(slices.Clip(last.Parts), part)
		return
	}
	s.Messages = append(s.Messages, model.Message{Role: model.User, Parts: []model.Part{part}})
}

// mend makes a conversation with any end valid: calls and results in pairs, roles that alternate, the user first.
func mend(all []model.Message) []model.Message {
	var out []model.Message
	for _, m := range all {
		if len(m.Parts) == 0 || m.Role != model.User && m.Role != model.Assistant {
			continue
		}
		var open []model.Part // calls of the message before
		if n := len(out); n > 0 {
			open = out[n-1].Calls()
		}
		if m.Role == model.User {
			m.Parts = answered(m.Parts, open)
		} else {
			m.Parts = slices.DeleteFunc(slices.Clone(m.Parts), func(p model.Part) bool { return p.Kind == model.Result })
		}
		switch n := len(out); {
		case len(m.Parts) == 0, n == 0 && m.Role == model.Assistant:
		case n > 0 && out[n-1].Role == m.Role:
			out[n-1].Parts = append(slices.Clip(out[n-1].Parts), m.Parts...)
		default:
			out = append(out, m)
		}
	}
	if n := len(out); n > 0 {
		if open := out[n-1].Calls(); len(open) > 0 {
			out = append(out, model.Message{Role: model.User, Parts: answered(nil, open)})
		}
	}
	return out
}

// answered returns the parts of a user's message, beginning with exactly one result for each call before it.
func answered(parts, calls []model.Part) []model.Part {
	var out []model.Part
	for _, c := range calls {
		i := slices.IndexFunc(parts, func(p model.Part) bool { return p.Kind == model.Result && p.ID == c.ID })
		if i >= 0 {
			out = append(out, parts[i])
		} else {
			out = append(out, model.Part{Kind: model.Result, ID: c.ID,
				Text: "interrupted: what it did is not known", Failed: true})
		}
	}
	for _, p := range parts {
		if p.Kind == model.Text || p.Kind == model.Reasoning {
			out = append(out, p)
		}
	}
	return out
}
