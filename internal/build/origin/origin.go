// Package origin fetches files that a build names by a URL. What an origin sends may be hostile: it is bounded, and is
// what a checksum says, or is refused.
package origin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// Getter is the way to origins.
type Getter interface {
	// Get requests a URL, as the policy of the build allows. The caller closes the body of the response. Errors:
	// Forbidden, Unavailable.
	Get(ctx context.Context, url string) (*http.Response, error)
}

// Check refuses a source of ADD that is elsewhere and no file.
func Check(source string) error {
	u, err := url.Parse(source)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && path.Ext(u.Path) != ".git" && u.Fragment == "" {
		return nil
	}
	return cove.Errorf(cove.Unsupported, "ADD of %.200q is not supported", source).
		WithHint("URLs of files are; clone a repository with RUN, under the policy of the build, such as --allow HOST")
}

var checksumForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// CheckSum refuses a checksum that is not one of SHA-256.
func CheckSum(sum string) error {
	if checksumForm.MatchString(sum) {
		return nil
	}
	return cove.Errorf(cove.Unsupported, "--checksum=%.100s is not supported", sum).WithHint("write sha256: and 64 digits")
}

// Name returns the name of the file of a URL; empty: it names none.
func Name(source string) string {
	u, err := url.Parse(source)
	if err != nil {
		return ""
	}
	if name := path.Base(u.Path); name != "/" && name != "." && name != ".." {
		return name
	}
	return ""
}

// Fetch fetches a URL into a new file that is its owner's alone, with the time that the origin states. A checksum may
// be empty. Errors: those of get; Unavailable, TooLarge, Corrupt, StorageFull.
func Fetch(ctx context.Context, get Getter, source, to, checksum string) (err error) {
	r, err := get.Get(ctx, source)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return cove.Errorf(cove.Unavailable, "%.200s was answered with status %d", source, r.StatusCode)
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cove.Errorf(cove.StorageFull, "make a file: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	most := unpack.DefaultLimits().Bytes
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(roomy{r.Body, filepath.Dir(to)}, most+1))
	_, known := errors.AsType[*cove.Error](err)
	switch {
	case known:
		return err
	case unpack.IsFull(err):
		return unpack.Full(err)
	case err != nil:
		return cove.Errorf(cove.Unavailable, "cannot fetch %.200s: %w", source, err)
	case n > most:
		return cove.Errorf(cove.TooLarge, "%.200s has more than %d bytes", source, most)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); checksum != "" && got != checksum {
		return cove.Errorf(cove.Corrupt, "%.200s has the digest %s, and not %s", source, got, checksum)
	}
	at, err := http.ParseTime(r.Header.Get("Last-Modified"))
	if err != nil {
		at = time.Unix(0, 0) // as BuildKit has it
	}
	return errors.Join(f.Close(), os.Chtimes(to, at, at))
}

// roomy reads while the disk has room.
type roomy struct {
	io.Reader
	dir string
}

func (r roomy) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	return n, cmp.Or(layer.Spare(r.dir), err)
}
