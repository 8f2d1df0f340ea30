// Package containers finds the containers that others start with Docker or Podman, and tells when they change. It asks
// the engine's own command line program, which knows where the engine is.
package containers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Programs are the engines whose containers are found, in the order in which they are looked for.
func Programs() []string { return []string{"docker", "podman"} }

// Engine is an engine by its command line program.
type Engine struct{ program string }

// Find returns the engine of that name; empty is the first that is installed. Errors: InvalidArgument for another name,
// NotFound where its program is not installed.
func Find(name string) (Engine, error) {
	if name != "" && !slices.Contains(Programs(), name) {
		return Engine{}, cove.Errorf(cove.InvalidArgument, "there are no containers of %.80q", name).
			WithHint("choose one of %s", strings.Join(Programs(), ", "))
	}
	for _, program := range Programs() {
		if name != "" && name != program {
			continue
		}
		if _, err := exec.LookPath(program); err == nil {
			return Engine{program}, nil
		}
	}
	if name == "" {
		name = strings.Join(Programs(), " nor ")
	}
	return Engine{}, cove.Errorf(cove.NotFound, "%s is not installed", name).WithHint("install it, or check PATH")
}

// Container is one of an engine's.
type Container struct {
	ID      string
	Name    string
	PID     int    // of its first process, as this machine numbers it if the engine is here; 0 while it does not run
	Network string // the mode: "none", "host", "bridge", "container:ID", …
	// Privileged containers are hardly separated from this machine.
	Privileged bool
	Started    string // when that process was started, as the engine writes it
}

// Choice says which containers are meant: the one of a name or an id, or all with a label.
type Choice struct {
	Name  string
	Label string // KEY or KEY=VALUE
}

// Client returns the name of a container's client: the name of the container if the user has given it, else its id. A
// name that it has of others never meets a client that is registered already.
func (c Choice) Client(of Container) string {
	if c.Name == of.Name {
		return of.Name
	}
	return fmt.Sprintf("%.12s", of.ID)
}

// List returns the containers that exist. Errors: Unavailable, where the engine does not answer.
func (e Engine) List(ctx context.Context, c Choice) ([]Container, error) {
	names := []string{c.Name}
	if c.Name == "" {
		out, err := e.ask(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+c.Label)
		if err != nil {
			return nil, err
		}
		names = strings.Fields(string(out))
	}
	var all []Container
	for _, name := range names {
		out, err := e.ask(ctx, "inspect", "--type", "container", "--", name)
		if cove.ErrorCode(err) == cove.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := parse(out)
		if err != nil {
			return nil, cove.Errorf(cove.Unavailable, "%s describes the container %.80q in no way that Cove knows: %w",
				e.program, name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Vouched refuses a container whose label does not show that its owner set it: an image has labels, too, and so do the
// containers of files of repositories, which those who start them do not choose. Such a file cannot have a label with
// secret words as its value. Errors: Forbidden, Unavailable.
func (e Engine) Vouched(ctx context.Context, c Container, label string) error {
	var own, ofImage struct {
		Image  string
		Labels map[string]string
	}
	out, err := e.ask(ctx, "inspect", "--type", "container", "--format",
		`{"Image": {{json .Image}}, "Labels": {{json .Config.Labels}}}`, "--", c.ID)
	if err == nil {
		err = json.Unmarshal(out, &own)
	}
	if err == nil {
		out, err = e.ask(ctx, "inspect", "--type", "image", "--format", `{"Labels": {{json .Config.Labels}}}`, "--",
			own.Image)
	}
	if err == nil {
		err = json.Unmarshal(out, &ofImage)
	}
	if err != nil {
		return cove.Errorf(cove.Unavailable, "its labels and those of its image cannot be compared: %w", err)
	}
	if why := vouched(label, own.Labels, ofImage.Labels); why != "" {
		return cove.Errorf(cove.Forbidden, "%s", why).WithHint("if you mean it, name it: --container %.12s", c.ID)
	}
	return nil
}

// vouched returns why a label of a container does not show that its owner set it, or "".
func vouched(label string, container, image map[string]string) string {
	key, _, _ := strings.Cut(label, "=")
	if of, is := image[key]; is && of == container[key] {
		return "its image has the label " + key
	}
	if secretLabel.MatchString(label) {
		return ""
	}
	for name := range container {
		for _, tool := range []string{"devcontainer.", "com.docker.compose.", "io.podman.compose."} {
			if strings.HasPrefix(name, tool) {
				return "it is made of a file, which may say the label " + key +
					": a dev container has one of its own, which \"cove devcontainer write\" prints"
			}
		}
	}
	return ""
}

// secretLabel is a label that "cove devcontainer write" has made.
var secretLabel = pattern.New(`^cove\.devcontainer=[a-z2-7]{26}$`)

// parse reads the description of containers that "inspect" prints.
func parse(text []byte) ([]Container, error) {
	var said []struct {
		ID    string `json:"Id"`
		Name  string
		State struct {
			Pid       int
			StartedAt string
		}
		HostConfig struct {
			NetworkMode string
			Privileged  bool
		}
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, err
	}
	var all []Container
	for _, s := range said {
		if s.ID == "" {
			return nil, errors.New("it has no id")
		}
		all = append(all, Container{ID: s.ID, Name: strings.TrimPrefix(s.Name, "/"), PID: s.State.Pid,
			Network: s.HostConfig.NetworkMode, Privileged: s.HostConfig.Privileged, Started: s.State.StartedAt})
	}
	return all, nil
}

// ask runs the program. Errors: NotFound where it knows no such container, Unavailable, Canceled with ctx.
func (e Engine) ask(ctx context.Context, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, e.program, args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, cove.Errorf(cove.Canceled, "it was ended")
	case strings.Contains(strings.ToLower(errs.String()), "no such container"):
		return nil, cove.Errorf(cove.NotFound, "there is no such container")
	}
	said := strings.TrimSpace(errs.String())
	if said == "" {
		said = err.Error()
	}
	return nil, cove.Errorf(cove.Unavailable, "%s does not answer: %.400s", e.program, said).
		WithHint("see that \"%s info\" works", e.program)
}

// Watch calls changed at once, and then whenever something has happened to containers, until ctx ends. Where the
// engine's events end, as they do with its daemon, it asks for them again.
func (e Engine) Watch(ctx context.Context, c Choice, again time.Duration, changed func()) {
	filter := "container=" + c.Name
	if c.Name == "" {
		filter = "label=" + c.Label
	}
	for ctx.Err() == nil {
		// Events between the call of changed and the program's first look are told, too.
		since := strconv.FormatInt(time.Now().Unix(), 10)
		changed()
		events := exec.CommandContext(ctx, e.program, "events", "--since", since, "--filter", "type=container",
			"--filter", filter)
		out, err := events.StdoutPipe()
		if err == nil {
			err = events.Start()
		}
		if err == nil {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				changed()
			}
			io.Copy(io.Discard, out) // of a line that was too long
			events.Wait()
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// Has reports whether a process of this machine belongs to a container: its control groups have the container's id in
// their names. That of an engine on another machine has another number here, or none.
func (c Container) Has(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && len(c.ID) >= 12 && strings.Contains(string(text), c.ID)
}
