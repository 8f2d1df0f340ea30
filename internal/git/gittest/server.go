// Package gittest is a git server for tests: git http-backend behind HTTPS on
// loopback, with accounts, a log of what it was sent, and faults on demand.
//
// What it serves is real: its repositories are ordinary bare ones, and git says
// what is in them. Whatever a client could do to a server it can do to this one.
package gittest

import (
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Options of a Server. The zero value lets everybody do everything.
type Options struct {
	User, Password string // of Basic; with neither this nor a token nobody has to say who they are
	Token          string // of Bearer, and a password of any user
	Anonymous      bool   // reading needs no account
	Names          []string
	Dumb           bool // serve files to readers, as servers do that have no git
	HTTP1          bool // no HTTP/2
	// Wrap puts something before the server: a fault, another answer. It sees
	// requests that are let in only. See Break, Redirect, Hold.
	Wrap func(git http.Handler) http.Handler
}

// Server is a git server. What it was sent is in Received.
type Server struct {
	Root  string // of the repositories
	CA    string // file with the certificate of its authority, PEM
	Roots *x509.CertPool

	t    testing.TB
	o    Options
	http *httptest.Server
	git  cgi.Handler

	mu       sync.Mutex
	received []Received
	active   int  // requests
	dead     bool // see Kill
}

// Received is a request as it came in, and what was answered.
type Received struct {
	Method string
	Path   string
	Query  string
	Header http.Header
	Chunks bool  // it had no length
	Body   int64 // bytes of it that were read
	Status int
}

// String is method, path and query.
func (r Received) String() string {
	if r.Query == "" {
		return r.Method + " " + r.Path
	}
	return r.Method + " " + r.Path + "?" + r.Query
}

// Start starts a server that ends with the test. A machine without git http-backend fails it.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	libexec, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatalf("git is needed: %v", err)
	}
	s := &Server{t: t, o: o, Root: t.TempDir()}
	s.git = cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(libexec)), "git-http-backend"),
		Dir:  s.Root,
		Env: append([]string{"GIT_PROJECT_ROOT=" + s.Root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=somebody",
			"PATH=" + os.Getenv("PATH"), "HOME=" + s.Root}, isolated...),
		Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
	}
	if _, err := os.Stat(s.git.Path); err != nil {
		t.Fatalf("git http-backend is needed: %v", err)
	}
	var inner http.Handler = http.HandlerFunc(s.serve)
	if o.Wrap != nil {
		inner = o.Wrap(inner)
	}
	s.http = httptest.NewUnstartedServer(s.guard(inner))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.EnableHTTP2 = !o.HTTP1
	// A git before 2.44 hangs for good when curl asks again for what has ended, as some
	// do whose upload had to wait for the other side to make room.
	s.http.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 4<<20 - 1, MaxReceiveBufferPerStream: 4<<20 - 1}
	s.certify()
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	return s
}

// Addr is where it listens.
func (s *Server) Addr() *net.TCPAddr { return s.http.Listener.Addr().(*net.TCPAddr) }

// URL is the address of a path on the server, by its name "localhost".
func (s *Server) URL(of string) string { return s.URLAt("localhost", of) }

// URLAt is the same by another of its names.
func (s *Server) URLAt(name, of string) string {
	_, port, _ := net.SplitHostPort(s.http.Listener.Addr().String()) // it has one
	return "https://" + net.JoinHostPort(name, port) + path.Join("/", of)
}

// Received is what has come in and was answered, in the order of the answers.
func (s *Server) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.received...)
}

// Forget empties the log.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = nil
}

// guard logs everything and asks for accounts.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			panic(http.ErrAbortHandler)
		}
		defer s.finish()
		entry := Received{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(),
			Chunks: len(r.TransferEncoding) > 0 || r.ContentLength < 0}
		body := &counted{ReadCloser: r.Body}
		r.Body = body
		answer := &status{ResponseWriter: w, code: http.StatusOK}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			entry.Body, entry.Status = body.n, answer.code
			s.received = append(s.received, entry)
		}()
		if !s.admits(r) {
			io.Copy(io.Discard, r.Body) // some clients hear nothing before they have said everything
			answer.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(answer, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(answer, r)
	})
}

func (s *Server) admits(r *http.Request) bool {
	if s.o.User == "" && s.o.Token == "" {
		return true
	}
	if s.o.Anonymous && !strings.Contains(r.URL.Path+r.URL.RawQuery, "git-receive-pack") {
		return true
	}
	if user, password, ok := r.BasicAuth(); ok {
		return s.o.User != "" && user == s.o.User && password == s.o.Password || s.o.Token != "" && password == s.o.Token
	}
	return s.o.Token != "" && r.Header.Get("Authorization") == "Bearer "+s.o.Token
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.o.Dumb && r.Method == http.MethodGet {
		http.FileServer(http.Dir(s.Root)).ServeHTTP(w, r)
		return
	}
	// Git reads to the end of its input. Told a length, it would read on without end once a client has broken off.
	if r.ContentLength != 0 {
		r.ContentLength, r.TransferEncoding = -1, nil
	}
	s.git.ServeHTTP(w, r)
}

type counted struct {
	io.ReadCloser
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n += int64(n)
	return n, err
}

type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }
