package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
)

const (
	// maxSigned bounds the bodies, in bytes, of requests that are signed: Bedrock takes 25,000,000.
	maxSigned = 25_000_000
	// maxInMemory is the part of such a body that is held in memory; a larger one is in a file without a name.
	maxInMemory = 1 << 20
	// maxLarge bounds the bodies of one sandbox that are in files at a time; others wait.
	maxLarge = 8
)

// bodies holds the bodies of requests that are signed, until they are sent: a signature comes before its body.
type bodies struct {
	dir    string
	places chan struct{} // one for each body in a file
}

// heldBody is a body to be read again. The zero value holds none.
type heldBody struct {
	io.Reader
	once sync.Once
	done func()
}

// Close implements io.Closer; more calls than one do nothing.
func (b *heldBody) Close() error {
	b.once.Do(func() {
		if b.done != nil {
			b.done()
		}
	})
	return nil
}

// bodyError is an error of a body that is held.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// digest returns a function that reads a request's body into held, and leaves that as the request's. Its errors are
// bodyErrors.
func (s *bodies) digest(held *heldBody) credential.Digest {
	return func(h *http.Request) (string, error) {
		sum := sha256.New()
		if h.Body == nil || h.Body == http.NoBody {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if h.ContentLength > maxSigned {
			return "", &bodyError{tooLarge(h.Body)}
		}
		size, err := s.hold(h.Context(), held, io.TeeReader(io.LimitReader(h.Body, maxSigned+1), sum))
		if err != nil {
			return "", &bodyError{err}
		}
		if size > maxSigned {
			return "", &bodyError{tooLarge(h.Body)}
		}
		h.Body.Close()
		h.Body, h.ContentLength, h.GetBody, h.Trailer = held, size, nil, nil
		if size == 0 {
			h.Body = http.NoBody
		}
		delete(h.Header, "Content-Length")
		return hex.EncodeToString(sum.Sum(nil)), nil
	}
}

// tooLarge reads as much again of a body before it refuses it: a program that is still sending when its connection ends
// often sees that end, and not the answer.
func tooLarge(body io.Reader) error {
	_, _ = io.CopyN(io.Discard, body, maxSigned)
	return cove.Errorf(cove.TooLarge, "a request that the gateway signs may have %d bytes", maxSigned)
}

func (s *bodies) hold(ctx context.Context, held *heldBody, from io.Reader) (size int64, err error) {
	var begin bytes.Buffer
	size, err = io.Copy(&begin, io.LimitReader(from, maxInMemory))
	held.Reader = &begin
	if err != nil || size < maxInMemory {
		return size, err
	}
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return 0, cove.Errorf(cove.Canceled, "the program that asked has gone: %w", context.Cause(ctx))
	}
	file, err := os.CreateTemp(s.dir, "body-")
	if err != nil {
		<-s.places
		return 0, cove.Errorf(cove.StorageFull, "there is no room for the body of a request: %w", err)
	}
	held.done = func() {
		file.Close()
		<-s.places
	}
	os.Remove(file.Name())
	rest, err := io.Copy(file, from)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if full := (*os.PathError)(nil); errors.As(err, &full) {
		return 0, cove.Errorf(cove.StorageFull, "there is no room for the body of a request: %w", err)
	} else if err != nil {
		return 0, fmt.Errorf("the body of a request broke off: %w", err)
	}
	held.Reader = io.MultiReader(&begin, file)
	return size + rest, nil
}
