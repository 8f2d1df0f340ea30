package session

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/secret"
)

// NewBuild describes an image to be built from a Dockerfile.
type NewBuild struct {
	Context    string // absolute path of a directory
	Dockerfile string // absolute path; empty: that of the context
	Name       string
	Args       map[string]string
	Secrets    map[string]secret.Value // by their ids
	Target     string
	Platform   string // "linux/arm64"; empty: this machine's
	NoCache    bool
	ToolCaches bool                   // commands keep the caches of compilers and package managers
	Once       bool                   // an image of the same is not built again; Name becomes NAME:HASH
	Pull       bool                   // images that the store lacks are pulled
	Inspect    bool                   // a command that fails leaves a shell in the state before it
	Output     *SavedImage            // nil: it is not written
	Push       bool                   // it is sent to the registry that Name says
	Network    *api.NetworkPermission // of its commands; nil is none
	Limits     *api.Limits            // of each of them; nil: those of the configuration

	// Below is the directory of Context that is the context after all, without a link that leads out of it.
	Below string
	// Text are the instructions, in place of a file; Ignore is then what says which files are left out.
	Text, Ignore []byte
	// Files are the context, in place of a directory. Commands then run as root, not as the user of the image.
	Files map[string][]byte
}

// ImageEnsure is the hidden command below "image" that builds an image unless it is there.
const ImageEnsure = "ensure"

// ImageFetch is the hidden command below "image" that pulls an image unless the store has it.
const ImageFetch = "fetch"

// ImageArtifact is the hidden command below "image" that gets an artifact of a registry.
const ImageArtifact = "artifact"

// ImageCompose is the hidden command below "image" that merges files of Compose.
const ImageCompose = "compose"

// Artifact is the only layer of an artifact of a registry.
type Artifact struct {
	Digest string `json:"digest"` // of its manifest
	Layer  []byte `json:"layer"`
}

// SavedImage says where an image is to be written.
type SavedImage struct {
	Ref    string
	Format string // "oci", "docker" or "local", files in a directory
	To     string // path; empty: standard output
}

// PushedImage says where an image is to be sent.
type PushedImage struct {
	Ref, As  string // As is its name there; empty: Ref
	Insecure bool   // plain HTTP to a registry that is not on this machine is allowed
}
