package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// New returns the proxy of a sandbox. Close ends it.
func New(sandbox Sandbox, o Options) *Server {
	s := &Server{
		sandbox: sandbox, dialer: o.Dialer, timeouts: o.Timeouts.withDefaults(), log: o.Log, max: o.MaxConnections,
		destination: originalDestination,
		feed:        newFeed(),
		listeners:   map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.max = cmp.Or(s.max, defaultMaxConnections)
	o.MaxRequests = cmp.Or(o.MaxRequests, defaultMaxRequests)
	s.requests = make(chan struct{}, o.MaxRequests)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.transport = s.newTransport(o.Roots, false)
	s.behind = s.newTransport(o.Roots, true)
	s.http = s.newHTTPServer()
	s.waiting.Go(func() { s.http.Serve(s.feed) })
	return s
}

func (s *Server) newHTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ConnContext:       withConn,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ReadHeaderTimeout: s.timeouts.Header,
		IdleTimeout:       s.timeouts.KeepAlive,
		MaxHeaderBytes:    maxHeadBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // protocol errors of clients, in their words
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250, SendPingTimeout: s.timeouts.KeepAlive, WriteByteTimeout: s.timeouts.Idle,
			MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 128 << 10,
			MaxReadFrameSize: 16 << 10, // a frame is held whole, and must fit into the stream's buffer
		},
	}
}

// ServeTransparent accepts connections that the sandbox's firewall has redirected to l, until l fails or Close.
func (s *Server) ServeTransparent(l net.Listener) error { return s.accept(l, s.transparent) }

// ServeExplicit accepts connections of clients that are configured for the proxy: HTTP and SOCKS5, distinguished by
// their first byte.
func (s *Server) ServeExplicit(l net.Listener) error { return s.accept(l, s.explicit) }

// accept serves every connection in a goroutine.
func (s *Server) accept(l net.Listener, serve func(*conn)) error {
	if !s.addListener(l) {
		l.Close()
		return net.ErrClosed
	}
	defer s.waiting.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return net.ErrClosed
			}
			if !isTemporary(err) {
				return err
			}
			select { // out of descriptors: wait until others are closed
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		client, ok := s.addConn(c)
		if !ok {
			reset(c)
			continue
		}
		go func() {
			defer s.running.Done()
			defer s.recovered()
			serve(client)
		}()
	}
}

func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// Shut ends every connection, waits for all started work, and refuses later connections. It may be called again.
func (s *Server) Shut() {
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = map[*conn]struct{}{}
	s.mu.Unlock()

	s.cancel()
	s.http.Close()
	for c := range conns {
		c.Conn.Close()
	}
	s.flows.cutAll()
	s.running.Wait()
}

// Close shuts the proxy and closes its listeners, which takes longer.
func (s *Server) Close() error {
	s.Shut()
	s.mu.Lock()
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.waiting.Wait()
	s.transport.CloseIdleConnections()
	s.behind.CloseIdleConnections()
	return nil
}
