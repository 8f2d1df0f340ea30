package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// currentName is the file that has the version which runs use.
const currentName = "current"

func (s *Store) dirOf(a agent.Agent) string { return filepath.Join(s.o.Dir, a.Name) }

// Layer returns the install that runs of an agent use. Errors: RuntimeMissing when it is not installed.
func (s *Store) Layer(a agent.Agent) (agent.Layer, error) {
	missing := cove.Errorf(cove.RuntimeMissing, "%s is not installed", a.Title).
		WithHint("install it: cove agents install %s", a.Name)
	switch {
	case a.Package.Beside != "":
		program := filepath.Join(s.o.Beside, a.Package.Beside)
		if _, err := os.Stat(program); err != nil {
			return agent.Layer{}, cove.Errorf(cove.RuntimeMissing, "%s is not there: %w", a.Title, err).
				WithHint("install %s beside cove", a.Package.Beside)
		}
		return agent.Layer{Name: a.Name, Source: program}, nil
	case a.Package.Npm == "":
		return agent.Layer{}, nil
	}
	data, err := os.ReadFile(filepath.Join(s.dirOf(a), currentName))
	if errors.Is(err, fs.ErrNotExist) {
		return agent.Layer{}, missing
	}
	if err != nil {
		return agent.Layer{}, cove.Errorf(cove.Corrupt, "which version of %s is in use cannot be read: %w", a.Title, err)
	}
	version := strings.TrimSpace(string(data))
	l := s.layer(a, version)
	if agent.CheckVersion(version) != nil || !exists(l.Source) {
		return agent.Layer{}, missing
	}
	return l, nil
}

func (s *Store) layer(a agent.Agent, version string) agent.Layer {
	return agent.Layer{Name: a.Name + "/" + version, Version: version, Source: filepath.Join(s.dirOf(a), version)}
}

// Place returns the directory of the layer of a name, to show to a sandbox. Errors: NotFound, RuntimeMissing.
func (s *Store) Place(layer string) (hostpath.Own, error) {
	if strings.Contains(layer, "/") {
		return hostpath.Own{Dir: s.o.Dir, Name: layer}, nil
	}
	a, err := s.Agent(layer)
	if err != nil {
		return hostpath.Own{}, err
	}
	l, err := s.Layer(a)
	if err != nil {
		return hostpath.Own{}, err
	}
	program, err := filepath.EvalSymlinks(l.Source) // as the installation of Cove put it there
	if err != nil {
		return hostpath.Own{}, cove.Errorf(cove.RuntimeMissing, "%s is not there: %w", a.Title, err).
			WithHint("install %s beside cove", a.Package.Beside)
	}
	return hostpath.Own{Dir: filepath.Dir(program), Name: filepath.Base(program)}, nil
}

// Versions returns the installed versions of an agent, in no particular order.
func (s *Store) Versions(a agent.Agent) ([]string, error) {
	entries, err := os.ReadDir(s.dirOf(a))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.Corrupt, "the installed versions of %s cannot be read: %w", a.Title, err)
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() && agent.CheckVersion(e.Name()) == nil {
			all = append(all, e.Name())
		}
	}
	slices.Sort(all)
	return all, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
