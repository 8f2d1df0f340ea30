// Package profiler serves profiles and traces of the running process to the machine's owner, over a unix socket.
//
// The socket is the owner's. A connection is closed unless a process of the owner's outside every
// sandbox has made it, as at the socket of the API.
package profiler

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/trace"
	"time"

	"github.com/cove-sandbox/cove/internal/localsocket"
)

// The flight recorder keeps the last flightAge of the execution trace, or flightSize bytes of it if that is less.
const (
	flightAge  = 30 * time.Second
	flightSize = 16 << 20
)

// Server serves profiles. Make one with Listen.
type Server struct {
	ln       net.Listener
	http     *http.Server
	recorder *trace.FlightRecorder
}

// Listen listens at a path, in place of a socket that a dead process has left, and begins to record flights. Close must
// be called. A process has one Server at a time.
func Listen(path string, log *slog.Logger) (*Server, error) {
	s := &Server{recorder: trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: flightAge, MaxBytes: flightSize})}
	if err := s.recorder.Start(); err != nil {
		return nil, fmt.Errorf("cannot record traces: %w", err)
	}
	ln, err := localsocket.Listen(path)
	if err != nil {
		s.recorder.Stop()
		return nil, err
	}
	s.ln = owners{ln, log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/flight", s.flight)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	return s, nil
}

// Addr returns the address of the socket.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Serve serves until Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close cuts what is served and ends the recording.
func (s *Server) Close() error {
	defer s.recorder.Stop()
	return errors.Join(s.http.Close(), s.ln.Close())
}

// flight answers with the last seconds of the execution trace, as go tool trace reads it.
func (s *Server) flight(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := s.recorder.WriteTo(w); err != nil {
		http.Error(w, "the trace cannot be written now: "+err.Error(), http.StatusServiceUnavailable)
	}
}

// owners hands out the connections of the machine's owner, and closes others.
type owners struct {
	net.Listener
	log *slog.Logger
}

// Accept implements net.Listener.
func (l owners) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		stranger := localsocket.CheckPeer(c)
		if stranger == nil {
			return c, nil
		}
		c.Close()
		l.log.Warn("a connection for profiles was closed", "error", stranger)
	}
}
