package server

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/compose"
)

// Daemon carries out the commands of this room that no server does: they serve, or look after this machine.
type Daemon interface {
	Serve(ctx context.Context, sess *session.Session, o ServeOptions) error
	// Doctor tries every control, and sets the exit code of a machine that lacks some.
	Doctor(ctx context.Context, sess *session.Session) (ui.Result, error)
	// Probe is the process of one check of the doctor's; it returns its exit code.
	Probe(args []string) int
	Images() Images
	// Restore makes the home of a backup.
	Restore(ctx context.Context, sess *session.Session, file string) (ui.Result, error)
}

// Images works on the store of images of this machine.
type Images interface {
	// AddImage shows the progress of what it adds to the store, and then the image.
	AddImage(ctx context.Context, sess *session.Session, wanted NewImage) error
	// FetchArtifact gets an artifact of a registry, and prints it; the store does not have it afterwards.
	FetchArtifact(ctx context.Context, sess *session.Session, ref string) error
	// MergeCompose merges files of Compose, and prints what they describe.
	MergeCompose(ctx context.Context, sess *session.Session, files compose.Request) error
	// BuildImage shows the progress of a build, and then the image; of one that is built once, its name alone.
	BuildImage(ctx context.Context, sess *session.Session, wanted session.NewBuild) error
	// SaveImage writes an image, and says where.
	SaveImage(ctx context.Context, sess *session.Session, wanted session.SavedImage) error
	// PushImage shows the progress of what it sends to a registry, and then where the image is.
	PushImage(ctx context.Context, sess *session.Session, wanted session.PushedImage) error
	ListImages(ctx context.Context, sess *session.Session) (ui.Result, error)
	RemoveImages(ctx context.Context, sess *session.Session, names []string) (ui.Result, error)
	PruneImages(ctx context.Context, sess *session.Session) (ui.Result, error)
}

// ServeOptions configure a server.
type ServeOptions struct {
	LogFile    string        // that begins anew when it is large; empty: standard error
	Background bool          // a command has started it
	Idle       time.Duration // after which one in the background ends when nothing runs
}

// NewImage describes an image that the store does not have yet.
type NewImage struct {
	Pull     bool   // it is at a registry
	Missing  bool   // it is not pulled where the store has it
	From     string // its reference there, or the place of a file or directory
	Name     string // what it will be called; empty: as it is called where it comes from
	Platform string // of an image for several; empty: this machine's
	Insecure bool   // plain HTTP to a registry that is not on this machine is allowed
}
