//go:build linux

package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// pager is a program that shows the output.
type pager struct {
	to   *os.File
	proc *os.Process
	once sync.Once
}

// startPager starts the user's, or returns nil without one.
func (s *session) startPager(asked bool) *pager {
	program, chosen := s.pagerProgram(asked)
	if program == "" || program == "cat" || !chosen && lookPath("less") == "" {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	env := os.Environ()
	for name, value := range map[string]string{"LESS": "FRX", "LV": "-c"} {
		if _, ok := os.LookupEnv(name); !ok {
			env = append(env, name+"="+value)
		}
	}
	proc, err := os.StartProcess("/bin/sh", []string{"sh", "-c", program},
		&os.ProcAttr{Files: []*os.File{r, os.Stdout, os.Stderr}, Env: env})
	r.Close()
	if err != nil {
		w.Close()
		return nil
	}
	return &pager{to: w, proc: proc}
}

// pagerProgram returns the pager, and whether it was chosen by a setting.
func (s *session) pagerProgram(asked bool) (program string, chosen bool) {
	if v := s.settings.get("pager." + s.name()); v != "" && !asked {
		switch strings.ToLower(v) {
		case "false", "no", "off", "0":
			return "", true
		case "true", "yes", "on", "1":
		default:
			return v, true
		}
	}
	if v, ok := os.LookupEnv("GIT_PAGER"); ok {
		return v, true
	}
	if v := s.settings.get("core.pager"); v != "" {
		return v, true
	}
	if v, ok := os.LookupEnv("PAGER"); ok {
		return v, true
	}
	return "less", false
}

// wait ends its input and waits until the user has read.
func (p *pager) wait() {
	p.once.Do(func() {
		p.to.Close()
		p.proc.Wait()
	})
}

func lookPath(name string) string {
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		program := path.Join(dir, name)
		if fi, err := os.Stat(program); err == nil && !fi.IsDir() && fi.Mode()&0o111 != 0 {
			return program
		}
	}
	return ""
}

// edit has the user edit a text, and sends it back.
func (s *session) edit(frame []byte) error {
	var e wire.Edit
	if err := json.Unmarshal(frame, &e); err != nil {
		return err
	}
	answer := wire.Edited{ID: e.ID}
	text, err := s.editText(path.Base(e.Name), e.Text)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
	} else {
		answer.OK, answer.Text = true, text
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	conn, _, err := post(wire.EditedPath, body)
	if err == nil {
		conn.Close()
	}
	return err
}

func (s *session) editText(name string, text []byte) ([]byte, error) {
	program, err := s.editorProgram()
	if err != nil {
		return nil, err
	}
	if program == ":" {
		return text, nil
	}
	dir, err := os.MkdirTemp("", "git-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := path.Join(dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	s.editing.Store(true)
	defer s.editing.Store(false)
	proc, err := os.StartProcess("/bin/sh", []string{"sh", "-c", program + ` "$@"`, program, file},
		&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ()})
	if err != nil {
		return nil, err
	}
	state, err := proc.Wait()
	if err != nil {
		return nil, err
	}
	if !state.Success() {
		return nil, fmt.Errorf("there was a problem with the editor '%s'", program)
	}
	return os.ReadFile(file)
}

// editorProgram is the user's editor, found as git finds it.
func (s *session) editorProgram() (string, error) {
	if v := os.Getenv("GIT_EDITOR"); v != "" {
		return v, nil
	}
	if v := s.settings.get("core.editor"); v != "" {
		return v, nil
	}
	term := os.Getenv("TERM")
	dumb := term == "" || term == "dumb"
	if v := os.Getenv("VISUAL"); v != "" && !dumb {
		return v, nil
	}
	if v := os.Getenv("EDITOR"); v != "" {
		return v, nil
	}
	if dumb {
		return "", fmt.Errorf("Terminal is dumb, but EDITOR unset")
	}
	return "vi", nil
}
