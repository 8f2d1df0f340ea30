package httpapi

import (
	"context"
	"encoding/base64"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/profile"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// request turns a wire request into a request of the sandbox package, which checks language, limits, environment and
// code. This function checks the form, and host paths, whose rules depend on the caller.
func (s *edge) request(ctx context.Context, who cove.Principal,
	q api.ExecuteRequest) (r execution.Request, err error) {
	r = execution.Request{Language: q.Language, Code: []byte(q.Code), Args: q.Args,
		Entrypoint: q.Entrypoint}
	if err := checkInput(q); err != nil {
		return r, err
	}
	if q.Stdin != "" {
		r.Stdin = strings.NewReader(q.Stdin)
	}
	if r.Files, err = files(q.Files); err != nil {
		return r, err
	}
	if r.Spec, err = withProfile(s, q.Profile, executionSpec(q), profile.Apply); err != nil {
		return r, err
	}
	err = s.judge(ctx, who, &r.Spec, "work_dir")
	return r, err
}

// executionSpec returns the settings of a snippet's sandbox from a request.
func executionSpec(q api.ExecuteRequest) cove.Spec {
	spec := apispec.Spec(q.Spec)
	spec.Limits.Timeout, spec.Bind = apispec.Duration(q.Timeout), q.WorkDir
	if q.Permissions != nil {
		spec.Network = apispec.Network(q.Permissions.Network)
	}
	return spec
}

func checkInput(q api.ExecuteRequest) error {
	switch {
	case len(q.Stdin) > maxStdin:
		return cove.Errorf(cove.TooLarge, "stdin has %d bytes", len(q.Stdin)).
			WithHint("send at most %d, or stream it (stdin_stream)", maxStdin)
	case q.Stdin != "" && q.StdinStream:
		return cove.Errorf(cove.InvalidArgument, "stdin and stdin_stream exclude each other").WithHint("leave one out")
	}
	return checkTimeout(q.Timeout)
}

// checkTimeout refuses a timeout that is not a time. The runtime package refuses one that is out of range.
func checkTimeout(seconds api.Seconds) error {
	if seconds != 0 && math.Abs(float64(seconds)) < 1e-9 {
		return cove.Errorf(cove.InvalidArgument, "timeout of %g s is no time", seconds).WithHint("give seconds, such as 2.5")
	}
	return nil
}

// files decodes contents; the sandbox package judges paths and sizes.
func files(list []api.File) ([]provision.File, error) {
	seen := map[string]bool{}
	var out []provision.File
	for _, f := range list {
		if seen[f.Path] {
			return nil, cove.Errorf(cove.InvalidArgument, "the file %.200q is there twice", f.Path).WithHint("leave one out")
		}
		seen[f.Path] = true
		if f.Mode > 0o777 {
			return nil, cove.Errorf(cove.InvalidArgument, "mode %#o of the file %.200q has more than permission bits", f.Mode,
				f.Path).WithHint("use at most 0777 (511 in decimal)")
		}
		data := []byte(f.Content)
		if f.Encoding == "base64" {
			var err error
			if data, err = base64.StdEncoding.Strict().DecodeString(f.Content); err != nil {
				return nil, cove.Errorf(cove.InvalidArgument, "the content of the file %.200q is not base64", f.Path).
					WithHint("use the standard alphabet with padding, or leave encoding out")
			}
		}
		out = append(out, provision.File{Path: f.Path, Mode: f.Mode, Data: data})
	}
	return out, nil
}

// sandboxRequest turns a wire request into a request of the sandbox package. It checks the form, and the rules that
// depend on the caller.
func (s *edge) sandboxRequest(ctx context.Context, who cove.Principal,
	q api.SandboxRequest) (r sandbox.Request, err error) {
	if err := checkTokens(q.Mounts); err != nil {
		return r, err
	}
	if q.Bind != "" && q.Repository != nil {
		return r, cove.Errorf(cove.InvalidArgument, "bind and repository exclude each other").
			WithHint("leave one of them out")
	}
	r = sandbox.Request{Name: q.Name, Ensure: q.IfExists == api.IfExistsReturn}
	if r.Files, err = files(q.Files); err != nil {
		return r, err
	}
	spec, err := sandboxSpec(q)
	if err != nil {
		return r, err
	}
	if r.Home, err = broughtFiles(q.AgentConfig); err != nil {
		return r, err
	}
	if r.Spec, err = withProfile(s, q.Profile, spec, applyWithToken); err != nil {
		return r, err
	}
	if c := q.AgentConfig; c != nil {
		r.Brought, r.LeftOut = c.Brought, c.LeftOut
		if len(r.Brought) == 0 {
			for _, f := range c.Files {
				r.Brought = append(r.Brought, f.Path)
			}
		}
	}
	if r.Services, err = s.services(ctx, who, q.Services, r.User); err != nil {
		return r, err
	}
	r.Limits.Timeout = 0 // a profile's is that of its executions and runs
	if err := s.judge(ctx, who, &r.Spec, "bind"); err != nil {
		return r, err
	}
	if g := q.Repository; g != nil {
		if g.Worktree && !who.IsOwner() {
			return r, cove.Errorf(cove.Forbidden, "a worktree is for the machine's owner, who can edit it").
				WithHint("leave repository.worktree out")
		}
		r.Repository = &workspace.Repository{Source: g.Source, Branch: g.Branch, From: g.From, Sparse: g.Sparse,
			Depth: g.Depth, Worktree: g.Worktree, Uncommitted: g.Uncommitted, Ignored: g.Ignored}
		if u := g.Upload; u != nil {
			r.Repository.Upload = new(workspace.Upload(*u))
		}
	}
	return r, nil
}

// services turns services of the wire into those of the sandbox package. A caller may use the images that a sandbox of
// its own with that user may have. Errors: those of judge.
func (s *edge) services(ctx context.Context, who cove.Principal, asked []api.ServiceRequest,
	user cove.User) (all []cove.Service, err error) {
	for _, q := range asked {
		service := cove.Service{Name: q.Name, Image: q.Image, Args: q.Args, Env: q.Env, Ports: q.Ports,
			Volumes: apispec.Volumes(q.Volumes)}
		if q.Limits != nil {
			service.Limits = apispec.Limits(*q.Limits)
		}
		spec := cove.Spec{Image: q.Image, Shape: cove.Shape{User: user}}
		if err := s.judge(ctx, who, &spec, "services"); err != nil {
			return nil, err
		}
		service.Image = spec.Image
		all = append(all, service)
	}
	return all, nil
}

// broughtFiles are the files of a user's configuration of an agent, for the home.
func broughtFiles(c *api.AgentConfig) ([]provision.File, error) {
	if c == nil {
		return nil, nil
	}
	total := 0
	for _, text := range slices.Concat(c.Brought, c.LeftOut) {
		total += len(text)
	}
	if total > maxBroughtText {
		return nil, cove.Errorf(cove.TooLarge, "agent_config: brought and left_out may have %d KiB", maxBroughtText>>10).
			WithHint("say less")
	}
	all, err := files(c.Files)
	if err == nil {
		err = provision.CheckFiles(all, provision.MaxHomeFiles)
	}
	return all, err
}

// maxBroughtText bounds a caller's description of a configuration, in bytes.
const maxBroughtText = 64 << 10

// checkTokens refuses mounts where profiles put tokens.
func checkTokens(mounts []api.Mount) error {
	for _, m := range mounts {
		if path.Dir(path.Clean(m.Target)) == cove.Tokens {
			return cove.Errorf(cove.InvalidArgument,
				"mounts: %s is for tokens, which a profile alone puts into sandboxes", cove.Tokens).
				WithHint("name a profile with a token_file, or attach it elsewhere")
		}
	}
	return nil
}

// sandboxSpec returns the settings of a detached sandbox from a request.
func sandboxSpec(q api.SandboxRequest) (cove.Spec, error) {
	spec := apispec.Spec(q.Spec)
	spec.Network, spec.Git = apispec.Network(q.Network), apispec.Identity(q.Git)
	spec.Agent, spec.Bind, spec.AllowPR, spec.SSHAgent = q.Agent, q.Bind, q.AllowPR, q.SSHAgent
	spec.ImageUser, spec.Volumes = q.ImageUser, apispec.Volumes(q.Volumes)
	if dir := path.Clean(q.WorkDir); strings.HasPrefix(q.WorkDir, "/") && dir != cove.Workspace &&
		!strings.HasPrefix(dir, cove.Workspace+"/") {
		return spec, cove.Errorf(cove.InvalidArgument, "work_dir: %.200q is not in %s", q.WorkDir, cove.Workspace)
	}
	spec.WorkDir = strings.TrimPrefix(path.Clean("/"+strings.TrimPrefix(q.WorkDir, cove.Workspace)), "/")
	return spec, nil
}

// applyWithToken is profile.Apply for a sandbox in which agents may work.
func applyWithToken(p api.Profile, spec cove.Spec) (cove.Spec, error) {
	spec, err := profile.Apply(p, spec)
	return profile.WithToken(p, spec), err
}

func (s *edge) profiles() ([]api.Profile, error) {
	if s.Profiles == nil {
		return nil, nil
	}
	return s.Profiles()
}

// withProfile is a request with the profile that it names, if it names one.
func withProfile[Q any](s *edge, name string, q Q, with func(api.Profile, Q) (Q, error)) (Q, error) {
	if name == "" {
		return q, nil
	}
	all, err := s.profiles()
	if err != nil {
		return q, err
	}
	p, err := profile.Find(all, name)
	if err != nil {
		return q, err
	}
	return with(p, q)
}
