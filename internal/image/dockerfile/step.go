package dockerfile

// Step is one instruction of a stage, with every word expanded.
type Step struct {
	Text    string // the instruction, in one line
	History string // as an image's history states it
	Line    int    // of the Dockerfile; 0 for a trigger of the base
	// At most one of these is set. A step without any changes the configuration alone.
	Run    *Run
	Copy   *Copy
	Dir    string // a directory to make, absolute
	Config Config // after the step
}

// Layer reports whether a step changes files.
func (s Step) Layer() bool { return s.Run != nil || s.Copy != nil || s.Dir != "" }

// Run is a command to run.
type Run struct {
	Args    []string
	Script  string   // content of a program that Args[0] names, below ScriptDir; empty: there is none
	Env     []string // the whole environment
	Dir     string
	User    string // as USER names it; empty is root
	Mounts  []Mount
	Offline bool // --network=none
}

// ScriptDir is the directory at which a Run finds its script.
const ScriptDir = "/dev/pipes"

// MountKind is the kind of a mount of a Run.
type MountKind string

const (
	MountBind   MountKind = "bind"
	MountCache  MountKind = "cache"
	MountTmpfs  MountKind = "tmpfs"
	MountSecret MountKind = "secret"
)

// Mount is a mount of a Run.
type Mount struct {
	Kind     MountKind
	From     Source
	Path     string // below From
	Target   string // absolute
	ReadOnly bool
	ID       string // of a cache or a secret
	Alone    bool   // a cache that one step at a time uses
	Required bool   // of a secret
	Env      string // the variable that a secret is in; empty: none
	File     bool   // a secret is a file at Target
	Mode     uint32 // of a cache's directory, or a secret
	UID, GID int
	Size     int64 // of a tmpfs, in bytes; 0: unlimited
}

// Copy takes files into the stage.
type Copy struct {
	Add      bool // ADD: archives are unpacked, and URLs are fetched
	From     Source
	Sources  []string
	Inline   []Inline
	Dest     string // absolute; a slash at its end makes it a directory
	Chown    string
	Chmod    string
	User     string // of the stage; who owns what is copied does not depend on it
	Exclude  []string
	Parents  bool
	Checksum string
	Unpack   *bool // --unpack; nil: archives of the context are
}

// Inline is a file in the Dockerfile itself.
type Inline struct {
	Name string
	Data string
}
