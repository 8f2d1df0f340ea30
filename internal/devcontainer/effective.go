package devcontainer

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
)

// Context holds the values of the user against which a file is judged.
type Context struct {
	Local    string            // directory of the checkout on the host
	LocalEnv map[string]string // of the host's environment, what the user's configuration names
	Limits   cove.Limits       // of the sandbox without the file
	Allowed  []string          // HOST and *.HOST that it may reach without the file
	Machine  cove.Limits       // what there is: cores and memory; zero is not known
	// Fetched returns the files of a feature of a registry that has been fetched, by its reference. It may be nil.
	Fetched func(ref string) (Files, bool)
	// Checkout has the files of Compose. It must not follow links out of itself, as that of an os.Root. It may be nil.
	Checkout fs.FS
	// Merge merges them. It may be nil.
	Merge func(compose.Request) (compose.Merged, error)
	// Origins say whence Limits and the image are, by the keys "memory", "cpus", "pids", "disk" and "image"; one that is
	// not there is of the user's configuration.
	Origins map[string]string
}

// Origins of a Value, beside the file.
const (
	FromUser    = "the user's configuration"
	FromDefault = "default"
	FromCove    = "Cove"
)

// Value is one effective value, and whence it is.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"` // FILE:LINE, or an origin
}

// LeftOut is a property of the file that a sandbox does not take.
type LeftOut struct {
	Key  string `json:"key"`
	File string `json:"file,omitempty"` // empty is the devcontainer.json
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// In returns the file that a property is in.
func (l LeftOut) In(e *Effective) string { return cmp.Or(l.File, e.File) }

// Effective holds the values that a sandbox takes of a devcontainer.json.
type Effective struct {
	File     string            `json:"file"`
	Name     string            `json:"name,omitempty"`
	Image    string            `json:"image,omitempty"` // empty is the user's own, or Build's
	Build    *Build            `json:"build,omitempty"` // of the image; nil is none
	User     string            `json:"user,omitempty"`  // of the image, if it has users; empty is its own
	Env      map[string]string `json:"env,omitempty"`
	WorkDir  string            `json:"work_dir"` // absolute, inside
	Limits   cove.Limits       `json:"-"`        // only those that are lower than the user's
	Network  Network           `json:"network"`
	Commands []Command         `json:"commands,omitempty"`
	// Unsupported are properties without which the sandbox would not be what the file describes.
	Unsupported []LeftOut `json:"unsupported,omitempty"`
	LeftOut     []LeftOut `json:"left_out,omitempty"`
	Values      []Value   `json:"values"`
	// Features are installed over the image, in this order; AddFeatures sets them.
	Features []Feature `json:"features,omitempty"`
	wanted   []Feature // as the file names them
	// Missing are references of features of registries that have not been fetched. They are Unsupported, too.
	Missing []string `json:"missing,omitempty"`
	order   []string // of overrideFeatureInstallOrder
	// Volumes are directories of the sandbox's own.
	Volumes []cove.Volume `json:"volumes,omitempty"`
	// Services run beside the sandbox, each by its name.
	Services []Service `json:"services,omitempty"`
	// Ports are of the sandbox and its services, for the user's machine to reach them. Nothing listens by itself.
	Ports []Port `json:"ports,omitempty"`
	// Read are files of the checkout that have been read, and belong to what the user agrees to.
	Read Files `json:"-"`
	// Refers are files of the checkout that belong to what the user agrees to.
	Refers []string `json:"refers,omitempty"`
}

// Err refuses a file that has properties which are not supported. Errors: Unsupported.
func (e *Effective) Err() error {
	if len(e.Unsupported) == 0 {
		return nil
	}
	u := e.Unsupported[0]
	return cove.Errorf(cove.Unsupported, "%s, line %d: %s: %s", u.In(e), u.Line, u.Key, u.Why).
		WithHint("--no-devcontainer leaves the file alone")
}

// Feature is a folder of the checkout with a script that installs something over an image.
type Feature struct {
	ID      string            `json:"id"`    // as the file names it
	Title   string            `json:"title"` // what it calls itself
	Dir     string            `json:"dir"`   // from the top of the checkout; of one of a registry, / and its reference
	Options map[string]string `json:"options,omitempty"`
	Env     map[string]string `json:"env,omitempty"` // of the image

	line     int // of the file
	name     string
	needs    []string // folders
	after    []string // references
	commands []Command
}

// Service describes a sandbox beside the one that is worked in.
type Service struct {
	Name   string            `json:"name"`
	Image  string            `json:"image,omitempty"`
	Build  *Build            `json:"build,omitempty"` // of its image, in place of Image
	Args   []string          `json:"args,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Ports  []uint16          `json:"ports,omitempty"`
	Limits cove.Limits       `json:"-"` // only those that are lower than the user's
	// Volumes are directories of the service's own.
	Volumes []cove.Volume `json:"volumes,omitempty"`
	// Over are instructions of a Dockerfile, which say over the image what a service of Cove has of its image.
	Over []string `json:"over,omitempty"`
}

// Port is a TCP port of a sandbox, or of a service beside it, which the file has reached from the user's machine. That
// machine listens at it when the user says so, and at no address but its loopback.
type Port struct {
	Service string  `json:"service,omitempty"` // empty is the sandbox itself
	Port    uint16  `json:"port"`
	Local   *uint16 `json:"local,omitempty"` // of the user's machine; nil is the same number, 0 one that is free
}

// String returns [LOCAL:][SERVICE:]PORT.
func (p Port) String() string {
	text := strconv.Itoa(int(p.Port))
	if p.Service != "" {
		text = p.Service + ":" + text
	}
	if p.Local != nil {
		text = fmt.Sprintf("%d:%s", *p.Local, text)
	}
	return text
}

// Build describes an image that is built from a Dockerfile of the checkout. Its paths are from the top of the checkout,
// with slashes, and do not leave it.
type Build struct {
	Dockerfile string            `json:"dockerfile"`
	Context    string            `json:"context"` // a directory
	Args       map[string]string `json:"args,omitempty"`
	Target     string            `json:"target,omitempty"` // empty is the last stage
}

// Ignores are the files of which the first that there is says what of the context is left out.
func (b Build) Ignores() []string {
	return []string{b.Dockerfile + ".dockerignore", path.Join(b.Context, ".dockerignore")}
}
