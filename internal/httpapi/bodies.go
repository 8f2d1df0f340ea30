package httpapi

import (
	"io"
	"net/http"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/share"
)

// countedBody takes memory of its caller's share as its bytes arrive, and gives up on a body that is not there by its
// deadline. At its end net/http takes the deadline off again and waits for the client to go away.
type countedBody struct {
	io.ReadCloser
	who      cove.Principal
	control  *http.ResponseController
	deadline time.Time
	begun    bool
	budget   *share.Pool
	taken    int64 // bytes of it
}

func (b *countedBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.control.SetReadDeadline(b.deadline)
	}
	n, err := b.ReadCloser.Read(p)
	memory := 2 * int64(n) // as text, and decoded
	if !b.budget.Take(b.who, memory) {
		return 0, errMemory()
	}
	b.taken += memory
	return n, err
}

func errMemory() error {
	return beyondShare("your large requests in progress take all the memory that they may beside those of others")
}

// decoded gives back what the text took. The other half is counted until the request ends: code, files and input are
// kept by what they are for.
func (b *countedBody) decoded() {
	b.budget.Give(b.who, b.taken/2)
	b.taken -= b.taken / 2
}

// settle gives back the rest.
func (b *countedBody) settle() {
	b.budget.Give(b.who, b.taken)
	b.taken = 0
}
