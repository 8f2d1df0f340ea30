package proxy

import (
	"io"
	"net/http"
	"time"
)

// receive prepares the request's body. In HTTP/1 it has net/http leave the body alone when the answer begins: an origin
// may answer before it has read the whole request, and so may the gateway.
func (x *exchange) receive() {
	if x.r.ContentLength == 0 || x.r.Body == nil {
		return
	}
	if x.r.ProtoMajor == 1 {
		http.NewResponseController(x.w).EnableFullDuplex()
	}
	x.sent = &requestBody{exchange: x, in: x.r, expects: x.r.Header.Get("Expect") != ""}
}

// finish reads the rest of an HTTP/1 body after the answer, or ends the connection. net/http must not find a rest: it
// would read it while it waits for the next request, and panic (golang/go#68560).
func (x *exchange) finish() {
	b := x.sent
	if b == nil || x.r.ProtoMajor != 1 {
		return
	}
	w := http.NewResponseController(x.w)
	if b.left() > 0 && !x.closes {
		w.Flush() // the client may wait for its answer before it sends the rest
		w.SetReadDeadline(time.Now().Add(x.server.timeouts.Idle))
		io.Copy(io.Discard, restOf{b})
	}
	if b.left() > 0 {
		x.conn.strict.end()
		w.SetReadDeadline(time.Unix(1, 0)) // for a read that waits
	}
	x.r.Body.Close()
}

func (b *requestBody) announce(out *http.Request) {
	for name := range b.in.Trailer {
		if trailerAllowed(name) {
			if b.trailer == nil {
				b.trailer = http.Header{}
			}
			b.trailer[name] = nil
		}
	}
	out.Trailer = b.trailer
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.take(p)
	b.exchange.body.Add(int64(n))
	b.exchange.conn.carried(n)
	b.exchange.watchdog.moved()
	if err == io.EOF {
		for name := range b.trailer {
			b.trailer[name] = b.in.Trailer[name]
		}
	}
	return n, err
}

func (b *requestBody) take(p []byte) (int, error) {
	n, err := b.in.Body.Read(p)
	read := b.read.Add(int64(n))
	if err == io.EOF || read == b.in.ContentLength {
		b.complete.Store(true)
	} else if err != nil {
		b.broken.Store(true)
	}
	return n, err
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	if b.in.ProtoMajor == 1 {
		return nil
	}
	return b.in.Body.Close()
}

// restOf reads a body that is closed for others.
type restOf struct{ body *requestBody }

func (r restOf) Read(p []byte) (int, error) { return r.body.take(p) }
