package image

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

// TestPushEnds: what a registry does in the middle of a push is one error, or tried again, and nothing is left.
func TestPushEnds(t *testing.T) {
	s := newStore(t)
	s.patience.stall = 100 * time.Millisecond
	content := make([]byte, 16<<20) // more than is on the way at a time
	rand.NewChaCha8([32]byte{}).Read(content)
	importRoot(t, s, "mine", string(content))
	held := make(chan struct{})
	defer close(held)
	patches := func(in func(w http.ResponseWriter, r *http.Request, n int64) (done bool)) string {
		var n atomic.Int64
		return startRegistry(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch && in(w, r, n.Add(1)) {
					return
				}
				next.ServeHTTP(w, r)
			})
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	for name, test := range map[string]struct {
		at   string
		ctx  context.Context
		want cove.Code
	}{
		"fails once": {patches(func(w http.ResponseWriter, r *http.Request, n int64) bool {
			if n == 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return n == 1
		}), t.Context(), ""},
		"fails": {patches(func(w http.ResponseWriter, r *http.Request, _ int64) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}), t.Context(), cove.Unavailable},
		"refuses": {patches(func(w http.ResponseWriter, r *http.Request, _ int64) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		}), t.Context(), cove.Unauthenticated},
		"takes nothing": {patches(func(_ http.ResponseWriter, r *http.Request, _ int64) bool {
			r.Body.Read(make([]byte, 1))
			<-held
			return true
		}), t.Context(), cove.Unavailable},
		"is interrupted": {patches(func(_ http.ResponseWriter, r *http.Request, _ int64) bool {
			io.Copy(io.Discard, r.Body)
			cancel()
			<-held
			return true
		}), canceled, cove.Canceled},
	} {
		pushed, err := BuildsOf(s).Push(test.ctx, "mine", test.at+"/mine", PushOptions{})
		if cove.ErrorCode(err) != test.want {
			t.Errorf("a registry that %s: %+v, %v", name, pushed, err)
		}
		if err == nil && (pushed.Layers != 1 || pushed.Name != test.at+"/mine:latest" || !validDigest(pushed.Digest)) {
			t.Errorf("a registry that %s: %+v", name, pushed)
		}
		wantNoLitter(t, s, 1)
	}
}
