package runtime

import (
	"github.com/cove-sandbox/cove"
)

// Runtime is the declaration of one language.
type Runtime struct {
	Name    string   // what users say: "python"
	Aliases []string // also accepted: "py", "python3"
	File    string   // the code's file name in cove.WorkDir
	// Command runs File; arguments of the program follow it.
	Command []string
	// Probe prints the version.
	Probe []string
	// Env is added to the sandbox's environment.
	Env []string
	// Package is the Debian package that has it, for the error when it is missing.
	Package string
	// Image is an image that has it, for the same error.
	Image string
	// Parked is the most code, in bytes, that the interpreter may be given once it has started and waits at File; 0: it
	// has no parked form. An interpreter has one if a program cannot tell that File was a named pipe until then.
	Parked int
	Limits cove.Limits // defaults; zero fields take Defaults
}

// Missing is the error for a runtime whose toolchain is not in image ("" or "host" is the host's own).
func (r Runtime) Missing(image string) error {
	if image == "" || image == "host" {
		return cove.Errorf(cove.RuntimeMissing, "%s is not installed on this host: there is no %s", r.Name, r.Command[0]).
			WithHint("install it (apt-get install %s), or run it in an image (--image %s)", r.Package, r.Image)
	}
	return cove.Errorf(cove.RuntimeMissing, "the image %.200q has no %s for %s", image, r.Command[0], r.Name).
		WithHint("use an image that has it (--image %s)", r.Image)
}
