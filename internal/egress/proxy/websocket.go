package proxy

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// webSocket is a request for a WebSocket (RFC 6455).
type webSocket struct{ key string }

// askedWebSocket returns the WebSocket request in r, or nil. Other upgrades are stripped from the request.
func askedWebSocket(r *http.Request) *webSocket {
	upgrade, key, version := r.Header["Upgrade"], r.Header["Sec-Websocket-Key"], r.Header["Sec-Websocket-Version"]
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.Method != http.MethodGet || r.ContentLength != 0 ||
		!has(r.Header, "Connection", "upgrade") ||
		len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket") ||
		len(version) != 1 || version[0] != "13" || len(key) != 1 {
		return nil
	}
	if nonce, err := base64.StdEncoding.DecodeString(key[0]); err != nil || len(nonce) != 16 {
		return nil
	}
	return &webSocket{key: key[0]}
}

// accepted reports whether a 101 answers this request.
func (s *webSocket) accepted(res *http.Response) bool {
	sum := sha1.Sum([]byte(s.key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	accept := res.Header["Sec-Websocket-Accept"]
	return has(res.Header, "Connection", "upgrade") && strings.EqualFold(res.Header.Get("Upgrade"), "websocket") &&
		len(accept) == 1 && accept[0] == base64.StdEncoding.EncodeToString(sum[:])
}

// upgrade joins both sides after a valid 101.
func (x *exchange) upgrade(ctx context.Context, res *http.Response, socket *webSocket) {
	origin, ok := res.Body.(io.ReadWriteCloser)
	if socket == nil || !ok || !socket.accepted(res) {
		x.bad(ctx, "the origin switched protocols without being asked for that one")
		return
	}
	if err := x.passage.Response(res); err != nil {
		x.refuse(err)
		return
	}
	if origin, ok = res.Body.(io.ReadWriteCloser); !ok { // which the passage may have wrapped
		x.bad(ctx, "the connection to the origin can no longer be written to")
		return
	}
	strip(res.Header)
	res.Header["Connection"] = []string{"Upgrade"}
	res.Header["Upgrade"] = []string{"websocket"}
	client, err := x.takeOver()
	if err != nil {
		x.problem = err.Error()
		return
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Conn.Close(); origin.Close() })()
	x.status = http.StatusSwitchingProtocols
	if err := writeSwitch(client, res.Header); err != nil {
		x.problem = err.Error()
		return
	}
	x.join(client, origin)
	if ctx.Err() != nil {
		x.problem = context.Cause(ctx).Error()
	}
}

var errEarly = errors.New("the client went on before the protocol was switched")

func (x *exchange) takeOver() (*strictConn, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	taken, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil, err
	}
	x.ended = true // the server's part of it
	client, ok := taken.(*strictConn)
	if !ok || buffered.Reader.Buffered() > 0 || client.refused != nil {
		taken.Close()
		return nil, errEarly
	}
	taken.SetDeadline(time.Time{})
	client.off = true
	return client, nil
}

func writeSwitch(w io.Writer, h http.Header) error {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", http.StatusSwitchingProtocols, http.StatusText(http.StatusSwitchingProtocols))
	h.Write(&b)
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// join copies in both directions until one side has ended for good.
func (x *exchange) join(client *strictConn, origin io.ReadWriteCloser) {
	var both sync.WaitGroup
	both.Go(func() { x.copyHalf(client, origin, &x.answer, client.CloseWrite, origin) })
	x.copyHalf(origin, client, &x.body, func() error { return closeWrite(origin) }, client)
	both.Wait()
}

// copyHalf copies in one direction. An error ends the other direction too.
func (x *exchange) copyHalf(to io.WriteCloser, from io.Reader, count *atomic.Int64, end func() error,
	source io.Closer) {
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	_, err := io.CopyBuffer(counted{to, count, x.watchdog}, onlyReader{from}, buffer[:])
	if err == nil {
		err = end()
	}
	if err != nil {
		to.Close()
		source.Close()
	}
}

type onlyReader struct{ io.Reader }

type counted struct {
	io.Writer
	count    *atomic.Int64
	watchdog *watchdog
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.count.Add(int64(n))
	c.watchdog.moved()
	return n, err
}
