package runtime

import (
	"bytes"

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
	// Seeks reports whether the interpreter goes back in the file of some code, which it cannot in a pipe; nil: of none.
	Seeks func(code []byte) bool
	// Trial is code that ends with 0, of an interpreter that is one thread while it is parked, and takes longer to start
	// than to make from a zygote; nil of others.
	Trial []byte
	// Preload has an interpreter with a Trial import modules before it waits at File; nil: it cannot.
	Preload func(modules []string) Preload
	Limits  cove.Limits // defaults; zero fields take Defaults
}

// Preload has an interpreter import modules when it starts.
type Preload struct {
	Place []string // a command that prints the path for Text
	Text  []byte   // of a file, which the interpreter reads and removes
	Check []byte   // code that ends with 0 if the modules are there, as Trial does, and else says why they are not
}

// Parks reports whether the interpreter, waiting at a named pipe, runs code as it runs the same file. Of a regular file
// alone, some look for signs of a program that is no text: NUL bytes, as in a zip archive, or the magic number of ELF.
func (r Runtime) Parks(code []byte) bool {
	return r.Parked > 0 && len(code) <= r.Parked && !bytes.ContainsRune(code, 0) &&
		!bytes.HasPrefix(code, []byte("\x7fELF")) && (r.Seeks == nil || !r.Seeks(code))
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
