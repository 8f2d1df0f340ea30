package httpapi

import (
	"context"
	"encoding/base64"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/profile"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// request turns a wire request into a request of the sandbox package, which checks language, limits, environment and
// code. This function checks the form, and host paths, whose rules depend on the caller.
func (s *Server) request(ctx context.Context, who cove.Principal,
	q api.ExecuteRequest) (r execution.Request, err error) {
	r = execution.Request{Language: q.Language, Code: []byte(q.Code), Args: q.Args}
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

// judge refuses what a caller may not ask of a sandbox, and resolves its host paths.
// bound is the field of the directory that is attached as the workspace.
func (s *Server) judge(ctx context.Context, who cove.Principal, spec *cove.Spec, bound string) (err error) {
	if err := s.mayReach(ctx, who, spec.Network); err != nil {
		return err
	}
	if spec.Image, err = s.image(ctx, who, spec.Image); err != nil {
		return err
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
	if spec.SSHAgent != "" && !who.IsOwner() {
		refusal := cove.Errorf(cove.Forbidden, "an SSH agent is the machine's owner's to lend").
			WithHint("leave ssh_agent out")
		s.deny(ctx, who, "ssh-agent", spec.SSHAgent, refusal)
		return refusal
	}
	return nil
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
func checkTimeout(seconds float64) error {
	if seconds != 0 && math.Abs(seconds) < 1e-9 || math.IsNaN(seconds) {
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

// pathSchemes are the references to images that name a host path.
var pathSchemes = []string{"dir", "tar", "oci", "docker-archive"}

// image lets strangers name images, but not the host's directories and files.
func (s *Server) image(ctx context.Context, who cove.Principal, image string) (string, error) {
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
func (s *Server) hostPath(ctx context.Context, who cove.Principal, field, p string) (string, error) {
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
