package cove

import (
	"slices"
	"strings"
)

// Service describes a neighbour of a sandbox: a sandbox of its own, in which the program of an image runs, and which
// the sandbox and its other services reach by its name.
type Service struct {
	Name   string
	Image  string            // as in Spec; the host's own toolchain is none
	Args   []string          `json:",omitempty"` // in place of the image's Cmd
	Env    map[string]string `json:",omitempty"`
	Ports  []uint16          `json:",omitempty"` // of TCP, all of which accept connections once it is ready
	Limits Limits            `json:",omitzero"`
	// Volumes belong to the service alone.
	Volumes []Volume `json:",omitempty"`
}

// MaxServices is the most services of one sandbox.
const MaxServices = 16

// reservedServices are names that stand for something else in a sandbox.
var reservedServices = []string{"localhost", "cove", "gateway"}

// isServiceName reports whether a text can be the name of a service: one label of a host name, with a letter first, and
// so no address, and none that stands for a name in other letters.
func isServiceName(s string) bool {
	const letters, more = "abcdefghijklmnopqrstuvwxyz", "0123456789-"
	return s != "" && len(s) <= 32 && !slices.Contains(reservedServices, s) && !strings.HasPrefix(s, "xn--") &&
		strings.IndexByte(letters, s[0]) >= 0 &&
		strings.Trim(s, letters+more) == "" && !strings.HasSuffix(s, "-")
}

// CheckServices refuses services that cannot be: with a name that is none or that another one has, without an image of
// their own. It is pure. Errors: InvalidArgument.
func CheckServices(all []Service) error {
	if len(all) > MaxServices {
		return Errorf(InvalidArgument, "%d services, at most %d are possible", len(all), MaxServices)
	}
	var names []string
	for _, s := range all {
		switch {
		case !isServiceName(s.Name):
			return Errorf(InvalidArgument, "%.80q is not a name for a service", s.Name).
				WithHint("use small letters, digits and hyphens within, at most 32, with a letter first; not localhost, cove, " +
					"gateway or xn--…")
		case slices.Contains(names, s.Name):
			return Errorf(InvalidArgument, "two services have the name %s", s.Name).WithHint("give each its own")
		case s.Image == "" || s.Image == "host":
			return Errorf(InvalidArgument, "the service %s has no image", s.Name).
				WithHint("name one whose program it runs, such as postgres:15")
		case slices.Contains(s.Ports, 0):
			return Errorf(InvalidArgument, "0 is not a port of the service %s", s.Name)
		}
		if err := CheckVolumes(s.Volumes); err != nil {
			return Errorf(InvalidArgument, "the service %s: %w", s.Name, err).WithHint("%s", ErrorHint(err))
		}
		names = append(names, s.Name)
	}
	return nil
}
