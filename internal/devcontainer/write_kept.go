package devcontainer

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// removed are properties that a written file does not have.
var removed = map[string]string{
	"initializeCommand":           never["initializeCommand"],
	"appPort":                     "a container without a network publishes no port; forwardPorts works",
	"privileged":                  widening["privileged"],
	"capAdd":                      "root inside has what package managers need; --debuggers has debuggers work without",
	"securityOpt":                 widening["securityOpt"],
	"overrideFeatureInstallOrder": "features are installed in the order that they ask for",
	"hostRequirements":            "the limits are yours, and a device would be the container's",
	"portsAttributes":             "ports are forwarded without",
	"otherPortsAttributes":        "ports are forwarded without",
	"secrets":                     never["secrets"],
}

// keptArgs are options of "docker run" that open no way to this machine, a network or other containers. Others find a
// container by its name and its labels, which are so not the file's.
var keptArgs = []string{"--init", "--rm", "--read-only", "--hostname", "--shm-size", "--tmpfs", "--ulimit", "--user",
	"--workdir", "--stop-signal", "--stop-timeout", "--memory-reservation", "--cpuset-cpus", "--cpu-shares", "--platform",
	"--env", "--add-host", "--health-cmd", "--health-interval", "--health-retries", "--health-start-period",
	"--health-timeout", "--no-healthcheck"}

// longArgs are the long names of those with a short one.
var longArgs = map[string]string{"-h": "--hostname", "-u": "--user", "-w": "--workdir", "-c": "--cpu-shares",
	"-e": "--env"}

var (
	printable = pattern.New(`^\P{Cc}+$`)
	wordForm  = pattern.New(`^[A-Za-z]+$`)
	nameForm  = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	userForm  = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
)

// plain reports whether a path has only characters that mean nothing to those who read mounts and variables.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+@~ ", r)
	})
}

func notPlain(name string) error {
	return cove.Errorf(cove.Unsupported, "%.200q cannot be attached to a container by its name", name).
		WithHint("rename it: letters, digits, spaces and . _ - + @ ~ may be in it")
}

// isPlace reports whether a text is an absolute path inside a container, below its root.
func isPlace(place string) bool {
	return plain(place) && strings.HasPrefix(place, "/") && path.Clean(place) == place && place != "/"
}

// Variables that are left in a text are the container's, or the shell's. One that others would replace with what the
// host has is never left.
var (
	containerVariable = pattern.New(`^\$\{containerEnv:[A-Za-z_][A-Za-z0-9_]*(:[^{}]*)?\}$`)
	shellVariable     = pattern.New(`^\$\{[#!]?([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*?!$#-])` +
		`(:?[-=+?][^{}]*|[#%/^,@\[][^{}]*|:[ 0-9][^{}]*)?\}$`)
	hostKinds = []string{"localEnv", "env", "containerEnv"}
)

func ofContainer(variable string) bool { return containerVariable.MatchString(variable) }

func ofShell(variable string) bool {
	m := shellVariable.FindStringSubmatch(variable)
	return m != nil && !slices.Contains(hostKinds, m[1])
}

// leftVariable returns the first ${…} of a text that may not be there, or "".
func leftVariable(text string, may ...func(string) bool) string {
	for {
		_, rest, found := strings.Cut(text, "${")
		if !found {
			return ""
		}
		name, after, closed := strings.Cut(rest, "}")
		one := "${" + name + "}"
		if !closed || !slices.ContainsFunc(may, func(is func(string) bool) bool { return is(one) }) {
			return one
		}
		text = after
	}
}

// OfImage returns the devcontainer.json of an image alone.
func OfImage(name string) File {
	text, _ := json.Marshal(map[string]string{"image": name}) // strings always marshal
	return File{folder + ".json", text}
}
