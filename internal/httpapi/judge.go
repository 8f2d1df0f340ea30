package httpapi

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// judge refuses what a caller may not ask of a sandbox, and resolves its host paths.
// bound is the field of the directory that is attached as the workspace.
func (s *edge) judge(ctx context.Context, who cove.Principal, spec *cove.Spec, bound string) (err error) {
	if err := s.mayReach(ctx, who, spec.Network); err != nil {
		return err
	}
	if spec.Image, err = s.image(ctx, who, spec.Image); err != nil {
		return err
	}
	chosen := spec.User.IsRoot() || spec.UserName != "" || spec.ImageUser != ""
	if chosen && strings.HasPrefix(spec.Image, "dir:") && !who.IsOwner() {
		refusal := cove.Errorf(cove.Forbidden, "root inside, or a user who is named, reads what users of the host have in "+
			"a directory, which the machine's owner may").
			WithHint("use an image of the server, or an archive")
		s.deny(ctx, who, "user", spec.Image, refusal)
		return refusal
	}
	if spec.Bind != "" {
		if spec.Bind, err = s.hostPath(ctx, who, bound, spec.Bind); err != nil {
			return err
		}
	}
	mounts := slices.Clone(spec.Mounts)
	for i, m := range mounts {
		if mounts[i].Source, err = s.hostPath(ctx, who, "mounts", m.Source); err != nil {
			return err
		}
	}
	spec.Mounts = mounts
	if len(spec.MountsAllow) > 0 && !who.IsOwner() {
		refusal := cove.Errorf(cove.Forbidden, "what mounts may hold and leave writable is the machine's owner's to say").
			WithHint("leave mounts_allow out")
		s.deny(ctx, who, "mounts-allow", strings.Join(spec.MountsAllow, ","), refusal)
		return refusal
	}
	if spec.SSHAgent != "" && !who.IsOwner() {
		refusal := cove.Errorf(cove.Forbidden, "an SSH agent is the machine's owner's to lend").
			WithHint("leave ssh_agent out")
		s.deny(ctx, who, "ssh-agent", spec.SSHAgent, refusal)
		return refusal
	}
	return nil
}

// mayReach refuses a network that a caller may not have. Errors: InvalidArgument, Forbidden.
func (s *edge) mayReach(ctx context.Context, who cove.Principal, asked *cove.Network) error {
	n, err := egress.NetworkOf(asked)
	if err != nil {
		return err
	}
	if len(n.Credentials) > 0 && !who.IsOwner() {
		err := cove.Errorf(cove.Forbidden, "credentials are the machine's owner's to use").
			WithHint("leave permissions.network.credentials out")
		s.deny(ctx, who, "network", strings.Join(n.Credentials, ","), err)
		return err
	}
	if len(n.Providers) > 0 {
		if err := s.mayUseModels(ctx, who, strings.Join(n.Providers, ",")); err != nil {
			return err
		}
	}
	return s.mayOpen(ctx, who, n.Policy)
}

// mayUseModels refuses the models of the machine's owner to a caller who has no budget for them, or none left. The
// gateway looks at each request for a model again. Errors: Forbidden, Overloaded, the store's.
func (s *edge) mayUseModels(ctx context.Context, who cove.Principal, providers string) error {
	if !who.IsCaller() {
		return nil
	}
	err := s.Grants.MayUseModels(who, s.Clock.Now())
	if err == nil {
		var used []model.ProviderUsage
		if used, err = s.Store.For(who).ModelsUsed(ctx); err != nil {
			return err
		}
		if err = model.Spare(s.Grants.Of(who).Models, "this API key", model.Sum(used)); err != nil {
			err = access.ModelsUsedUp(err)
		}
	}
	if err != nil {
		s.deny(ctx, who, "models", providers, err)
	}
	return err
}

// withModels returns the network in which an agent of a caller works. Where the request and its profile state none,
// that of a key with a model budget leads to the models of the profile's provider, or the agent's own. Without a
// budget, or with a network that is stated to be none, the agent is refused: it would ask for models until its time is
// up. A network that is stated may lead to models of the caller's own. Errors: Forbidden, Overloaded, the store's.
func (s *edge) withModels(ctx context.Context, who cove.Principal, a fit.Listed, provider string,
	n *cove.Network) (*cove.Network, error) {
	if who.IsOwner() || a.Provider == "" || n != nil && n.Enabled {
		return n, nil
	}
	if provider = cmp.Or(provider, a.Provider); n == nil && s.Grants.Of(who).Models != (cove.Budget{}) {
		return &cove.Network{Enabled: true, Providers: []string{provider}}, s.mayUseModels(ctx, who, provider)
	}
	err := cove.Errorf(cove.Forbidden, "%s has no models here: those with this machine's credentials are for its owner",
		cmp.Or(a.Title, a.Name)).
		WithHint("ask as the owner, over the server's socket, or with a key that has a model_budget and without stating " +
			"a network, or let it reach models of your own: permissions.network.allow")
	s.deny(ctx, who, "models", a.Name, err)
	return nil, err
}

// mayOpen: services of the machine and private addresses are the owner's to open.
func (s *edge) mayOpen(ctx context.Context, who cove.Principal, docs []*policy.Document) error {
	if who.IsOwner() {
		return nil
	}
	for _, d := range docs {
		if err := d.Foreign(nil); err != nil {
			s.deny(ctx, who, "network", d.Source, err)
			return err
		}
	}
	return nil
}

// pathSchemes are the references to images that name a host path.
var pathSchemes = []string{"dir", "tar", "oci", "docker-archive"}

// image lets strangers name images, but not the host's directories and files.
func (s *edge) image(ctx context.Context, who cove.Principal, image string) (string, error) {
	if len(image) > 1024 || strings.ContainsFunc(image, func(r rune) bool { return r < ' ' || r == 0x7f }) ||
		strings.HasPrefix(image, "-") {
		return "", cove.Errorf(cove.InvalidArgument, "%.100q is not the name of an image", image).
			WithHint("write host, dir:PATH, tar:PATH or a reference such as debian:stable")
	}
	if who.IsOwner() {
		return image, nil
	}
	scheme, p, _ := strings.Cut(image, ":")
	if !slices.Contains(pathSchemes, scheme) {
		if strings.Contains(image, ":/") || strings.HasPrefix(image, "/") || strings.HasPrefix(image, ".") {
			return "", cove.Errorf(cove.Forbidden, "%.100q is not the name of an image", image).
				WithHint("write host or a reference such as debian:stable")
		}
		return image, nil
	}
	tag := ""
	if i := strings.LastIndexByte(p, ':'); i > strings.LastIndexByte(p, '/') && scheme != "dir" && scheme != "tar" {
		p, tag = p[:i], p[i:]
	}
	resolved, err := s.hostPath(ctx, who, "image", p)
	return scheme + ":" + resolved + tag, err
}

// hostPath judges a host path (invariant H5). The owner may use every path that is not always refused. Other callers
// may use paths under the configured roots, and learn nothing about a path outside, not even whether it exists.
func (s *edge) hostPath(ctx context.Context, who cove.Principal, field, p string) (string, error) {
	if who.IsOwner() {
		return s.CheckPath(p, nil)
	}
	roots := s.WorkDirRoots
	if roots == nil {
		roots = []string{}
	}
	resolved, err := s.CheckPath(p, roots)
	if err != nil {
		refusal := cove.Errorf(cove.Forbidden, "%s: %.200q is not a path that may be attached", field, p).
			WithHint("name a directory under sandbox.allowed_workdir_roots of the server")
		s.deny(ctx, who, "attach", p, refusal)
		s.Log.Warn("a host path was refused", "request_id", exchangeOf(ctx).id, "path", truncate(p, 200), "client",
			who, "error", err)
		return "", refusal
	}
	return resolved, nil
}
