package image

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/source"
	"github.com/cove-sandbox/cove/internal/pattern"
)

type kind = source.Kind

const (
	fromHost   kind = "host"
	fromDir         = source.Dir
	fromTar         = source.Tar
	fromLayout      = source.Layout
	fromDocker      = source.Docker
	fromRef    kind = "reference" // name[:tag][@digest]
	fromDigest kind = "digest"    // sha256:…, of an image in the store
)

type target struct {
	kind kind
	path string         // directory and archives: absolute, clean; oci and docker-archive may end in ":tag"
	ref  string         // reference: its canonical form; fromDigest: "sha256:" and 12 to 64 hex digits
	name name.Reference // reference
}

const maxReference = 4096 // a path may be that long

func parse(s string) (target, error) {
	if len(s) > maxReference || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return target{}, cove.Errorf(cove.InvalidArgument, "%.80q is not an image: too long, or with control characters", s)
	}
	if s == "" || s == string(fromHost) {
		return target{kind: fromHost}, nil
	}
	scheme, rest, found := strings.Cut(s, ":")
	switch {
	case found && kind(scheme).OnDisk():
		if !filepath.IsAbs(rest) {
			return target{}, cove.Errorf(cove.InvalidArgument, "%s:%s: the path must be absolute", scheme, rest).
				WithHint("write %s:/path/to/it", scheme)
		}
		return target{kind: kind(scheme), path: filepath.Clean(rest)}, nil
	case found && scheme == "sha256":
		if len(rest) < 12 || len(rest) > 64 || strings.Trim(rest, "0123456789abcdef") != "" {
			return target{}, cove.Errorf(cove.InvalidArgument,
				"%.80q is not a digest: sha256: and 12 to 64 hexadecimal digits", s)
		}
		return target{kind: fromDigest, ref: s}, nil
	}
	return parseReference(s)
}

var (
	repositoryForm = pattern.New(
		`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	hostForm = pattern.New(
		`^[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

// parseReference accepts the distribution spec's grammar, narrower than the library's: no option, path or odd host.
func parseReference(s string) (target, error) {
	bad := func(why string) error {
		return cove.Errorf(cove.InvalidArgument, "%.200q is not an image reference: %s", s, why).
			WithHint("write NAME[:TAG], HOST/NAME@sha256:…, host, dir:PATH, tar:PATH, oci:PATH or docker-archive:PATH")
	}
	if len(s) > 512 {
		return target{}, bad("too long")
	}
	ref, err := name.ParseReference(s)
	if err != nil {
		return target{}, bad("it does not have the form of one")
	}
	if isScheme(ref.Context().RepositoryStr()) && !strings.Contains(s, "/") {
		return target{}, cove.Errorf(cove.InvalidArgument, "%.200q could be mistaken: %s has a meaning of its own", s,
			ref.Context().RepositoryStr()[len("library/"):]).
			WithHint("write %s, if that image is meant", canonical(ref))
	}
	if !repositoryForm.MatchString(ref.Context().RepositoryStr()) {
		return target{}, bad("the name may have lower-case letters, digits and single separators")
	}
	if !validHost(ref.Context().RegistryStr()) {
		return target{}, bad("the registry is not a host")
	}
	switch r := ref.(type) {
	case name.Tag:
		if !tagForm.MatchString(r.TagStr()) {
			return target{}, bad("the tag is malformed")
		}
	case name.Digest:
		if !validDigest(r.DigestStr()) {
			return target{}, bad("the digest must be a SHA-256")
		}
	}
	return target{kind: fromRef, ref: canonical(ref), name: ref}, nil
}

func validHost(hostPort string) bool {
	host, port := hostPort, ""
	if i := strings.LastIndexByte(hostPort, ':'); i >= 0 && !strings.HasSuffix(hostPort, "]") {
		host, port = hostPort[:i], hostPort[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && addr.Is6() && addr.Zone() == ""
	}
	return len(host) <= 253 && hostForm.MatchString(host)
}

// isScheme reports a repository whose short form would parse as something else.
func isScheme(repository string) bool {
	base, ok := strings.CutPrefix(repository, "library/")
	return ok && (kind(base).OnDisk() || base == string(fromHost) || base == "sha256")
}

// canonical returns the one form under which a reference is stored.
func canonical(ref name.Reference) string {
	return strings.Replace(ref.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
}

// familiar returns a canonical reference as users write it.
func familiar(ref string) string {
	rest, hub := strings.CutPrefix(ref, "docker.io/")
	if !hub {
		return ref
	}
	short, official := strings.CutPrefix(rest, "library/")
	switch repository, _, _ := strings.Cut(strings.Replace(rest, "@", ":", 1), ":"); {
	case isScheme(repository):
		return ref
	case official:
		return short
	}
	return rest
}

func (t target) String() string {
	switch t.kind {
	case fromHost:
		return string(fromHost)
	case fromRef:
		return familiar(t.ref)
	case fromDigest:
		return t.ref
	}
	return string(t.kind) + ":" + t.path
}

func notStored(t target) *cove.Error {
	return cove.Errorf(cove.ImageMissing, "image %s is not in the store", t)
}

// missing returns the error for a required image that is not in the store.
func missing(t target) error {
	err := notStored(t)
	switch t.kind {
	case fromRef:
		return err.WithHint("get it with \"cove image pull %s\"", t)
	case fromDigest:
		return err.WithHint("\"cove image list\" lists what is there")
	}
	return err.WithHint("get it with \"cove image import %s\"", t)
}

// validDigest accepts "sha256:" and 64 lower-case hex digits, which are also a safe file name.
func validDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

func about(source string, err error) error {
	known, ok := errors.AsType[*cove.Error](err)
	if !ok {
		return err
	}
	e := *known
	e.Message = source + ": " + e.Message
	return &e
}
