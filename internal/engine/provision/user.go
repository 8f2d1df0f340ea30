package provision

import (
	"cmp"
	"path"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// User returns the account of a sandbox's programs. spec.UserName names one of the root filesystem; without, the image
// says, or in its place spec.ImageUser, unless spec.User is root inside. spec.User is the account where neither does,
// or where the image says root: a sandbox has root inside only where its request says so. A user who is named beside
// root inside may become it, and has the system calls of root inside; else they are those of spec.User. A detached
// sandbox keeps the home of Cove's own user, which lasts; another one has that of the image, where it is.
//
// An engine that has no users of images runs their programs as spec.User, and refuses spec.UserName.
//
// Errors: InvalidArgument, NotFound, Forbidden, Unsupported, ImageMissing.
func User(eng engine.Engine, root engine.Rootfs, spec cove.Spec) (cove.User, error) {
	root.User = cmp.Or(spec.ImageUser, root.User)
	own, asked := spec.User, spec.UserName
	if err := mayName(eng, root, spec); err != nil {
		return own, err
	}
	name := cmp.Or(asked, root.User)
	if name == "" || asked == "" && (own.IsRoot() || root.Kind != engine.RootfsDir || !eng.Capabilities().Users) {
		return own, nil
	}
	u, err := rootfs.AccountOf(root.Stack(), name)
	switch {
	case err != nil && asked == "":
		says := "the image says"
		if spec.ImageUser != "" {
			says = "image_user says"
		}
		return own, cove.Errorf(cove.ErrorCode(err), "%s that its programs run as %.80q: %w", says, name, err)
	case err != nil:
		return own, err
	case u.UID == 0 && asked != "" && !own.IsRoot():
		return own, cove.Errorf(cove.Forbidden, "the user %.80q is root inside, which a sandbox has to be asked for", asked).
			WithHint("say --root instead of --user; see \"root inside\" in docs/running.md")
	case u.UID == 0:
		return own, nil
	case own.IsRoot():
		u.Root, own = true, cove.AgentUser
		if err := eng.Capabilities().CheckUser(u, spec.Lifetime != cove.LifetimeDetached); err != nil {
			return spec.User, err
		}
	}
	u.Agent = own.Agent
	if base := path.Base(u.Shell); base == "nologin" || base == "false" {
		u.Shell = own.Shell
	}
	u.Name = cmp.Or(u.Name, strconv.Itoa(u.UID))
	if u.Home == "" || spec.Lifetime == cove.LifetimeDetached || !rootfs.HasDir(root.Stack(), u.Home) {
		u.Home = own.Home
	}
	return u, nil
}

// mayName refuses a user by name or id where there is none to name.
func mayName(eng engine.Engine, root engine.Rootfs, spec cove.Spec) error {
	switch c := eng.Capabilities(); {
	case spec.UserName == "":
		return nil
	case root.Kind == "" || root.Kind == engine.RootfsHost:
		return cove.Errorf(cove.InvalidArgument, "the machine's own toolchain has no user %.80q, but Cove's own alone",
			spec.UserName).WithHint("leave --user out, or name an image: --image IMAGE")
	case root.Kind != engine.RootfsDir || !c.Users:
		return cove.Errorf(cove.Unsupported, "programs cannot be the user %.80q here: %s", spec.UserName,
			cmp.Or(c.Missing["users"], "the engine has no users of images")).
			WithHint("leave --user out: programs are an unprivileged user of Cove's own")
	}
	return nil
}
