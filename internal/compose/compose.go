// Package compose holds the services that the Compose files of a repository describe, with the file and line of each
// value, and variables of files. The files are not trusted: the package bounds their values, and opens none.
package compose

import (
	"bytes"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
)

// File is a file of a checkout, by its path from the top.
type File struct {
	Path string
	Data []byte
}

// Bounds of what is read. Real files are far below them.
const (
	maxFiles    = 16
	maxFile     = 256 << 10 // bytes
	maxServices = 64
)

// Request is about files that are merged in their order. Variables of Env take the places of ${NAME}.
type Request struct {
	Files []File
	Env   map[string]string
}

// Merged is the sum of several files.
type Merged struct {
	Services map[string]Service
	// Unset are variables that files refer to, and that have neither a value nor a default.
	Unset []string
	// Elsewhere are names of volumes that Compose does not make empty: of others, or with options of a driver.
	Elsewhere []string
}

// Service is one service, as far as Cove takes it.
type Service struct {
	Name        string
	Keys        []string // names of its members that say something, sorted
	Image       string
	Build       *Build
	User        string
	WorkingDir  string
	Command     []string
	Entrypoint  []string // nil is that of the image
	Environment map[string]*string
	EnvFiles    []EnvFile
	Volumes     []Volume
	Tmpfs       []string // TARGET, or TARGET:OPTIONS as mount has them
	Ports       []Port
	Expose      []string
	Health      *Health
	StopSignal  string
	DependsOn   map[string]Dependency
	Links       []string
	Profiles    []string
	Memory      int64
	CPUs        float64
	PIDs        int64
	SecurityOpt []string
	NetworkMode string
	Named       bool // it has other names or fixed addresses in its networks
	Reserves    bool // devices
}

// Build describes how the image of a service is built.
type Build struct {
	Context, Dockerfile, Inline, Target string
	Args                                map[string]*string
	Others                              []string // names of further members
}

// EnvFile is a file of variables.
type EnvFile struct {
	Path, Format string
	Required     bool
}

// Volume is a mount: of a directory ("bind"), of a volume ("volume") or another.
type Volume struct {
	Type, Source, Target string
	Size                 int64 // bytes in memory; 0: it is not said
}

// Port is a port inside, and outside where it is published.
type Port struct {
	Target              uint32
	Published, Protocol string
}

// Health is how a service is checked.
type Health struct {
	Test                           []string
	Disable                        bool
	Interval, Timeout, StartPeriod time.Duration
	Retries                        uint64
}

// Dependency is a service that starts before.
type Dependency struct{ Required, Ends bool }

// Project holds files, and their sum.
type Project struct {
	Merged
	files  []File
	places []places // by file
}

// Read bounds files, and finds the places of their values. What would read other files is refused. Errors:
// InvalidArgument, TooLarge, Unsupported.
func Read(files []File) (*Project, error) {
	p := &Project{files: files}
	if len(files) == 0 || len(files) > maxFiles {
		return nil, cove.Errorf(cove.TooLarge, "%d files of Compose, at most %d are possible", len(files), maxFiles)
	}
	nodes := 0
	for _, f := range files {
		if len(f.Data) > maxFile {
			return nil, cove.Errorf(cove.TooLarge, "%s is larger than %d KiB", f.Path, maxFile>>10)
		}
		found, err := find(f, &nodes)
		if err != nil {
			return nil, err
		}
		p.places = append(p.places, found)
	}
	return p, p.alone()
}

// alone refuses what would read other files, and too many services, which may all extend each other.
func (p *Project) alone() error {
	for n, found := range p.places {
		services := 0
		for at := range found {
			if rest, is := strings.CutPrefix(at, "services"+separator); is && !strings.Contains(rest, separator) {
				services++
			}
		}
		if services > maxServices {
			return cove.Errorf(cove.TooLarge, "%s has more than %d services", p.files[n].Path, maxServices)
		}
		for at, line := range found {
			parts := strings.Split(at, separator)
			switch {
			case len(parts) == 1 && at == "include":
				return cove.Errorf(cove.Unsupported, "%s, line %d: include: files that a file includes are not read",
					p.files[n].Path, line).WithHint("name them in dockerComposeFile")
			case len(parts) == 4 && parts[2] == "extends" && parts[3] == "file":
				return cove.Errorf(cove.Unsupported, "%s, line %d: services.%s.extends.file: other files are not read",
					p.files[n].Path, line, parts[1]).WithHint("name the file in dockerComposeFile, or write its values out")
			}
		}
	}
	return nil
}

// Variable returns the place where a variable is first referred to.
func (p *Project) Variable(name string) (file string, line int) {
	for _, f := range p.files {
		for _, form := range []string{"${" + name, "$" + name} {
			if i := bytes.Index(f.Data, []byte(form)); i >= 0 {
				return f.Path, 1 + bytes.Count(f.Data[:i], []byte("\n"))
			}
		}
	}
	return p.files[0].Path, 1
}
