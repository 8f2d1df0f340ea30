package gittest

import (
	"io"
	"net/http"
	"strings"
)

// Break cuts answers of a service off after so many bytes. Service is the end
// of the path: "git-upload-pack", "info/refs".
func Break(service string, after int64) func(http.Handler) http.Handler {
	return around(service, func(git http.Handler, w http.ResponseWriter, r *http.Request) {
		git.ServeHTTP(&breaking{ResponseWriter: w, left: after}, r)
		panic(http.ErrAbortHandler)
	})
}

type breaking struct {
	http.ResponseWriter
	left int64
}

func (b *breaking) Write(p []byte) (int, error) {
	part := p[:min(int64(len(p)), b.left)]
	n, err := b.ResponseWriter.Write(part)
	b.left -= int64(n)
	if err == nil && n < len(p) {
		http.NewResponseController(b.ResponseWriter).Flush()
		err = io.ErrClosedPipe
	}
	return n, err
}

// Redirect leads paths below from to the same below to, as servers do where a
// repository has moved: "/old.git" to "https://localhost:1/new.git".
func Redirect(from string, to func() string, code int) func(http.Handler) http.Handler {
	return func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rest, ok := strings.CutPrefix(r.URL.Path, from)
			if !ok || rest != "" && rest[0] != '/' {
				git.ServeHTTP(w, r)
				return
			}
			if r.URL.RawQuery != "" {
				rest += "?" + r.URL.RawQuery
			}
			http.Redirect(w, r, to()+rest, code)
		})
	}
}

// Hold lets requests for a service wait until released is closed, or whoever
// asks has gone. Each tells waiting that it waits.
func Hold(service string, waiting chan<- struct{}, released <-chan struct{}) func(http.Handler) http.Handler {
	return around(service, func(git http.Handler, w http.ResponseWriter, r *http.Request) {
		select {
		case waiting <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		select {
		case <-released:
			git.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// Answer answers a service itself.
func Answer(service string, h http.HandlerFunc) func(http.Handler) http.Handler {
	return around(service, func(_ http.Handler, w http.ResponseWriter, r *http.Request) { h(w, r) })
}

func around(service string, f func(git http.Handler, w http.ResponseWriter,
	r *http.Request)) func(http.Handler) http.Handler {
	return func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/"+service) {
				f(git, w, r)
			} else {
				git.ServeHTTP(w, r)
			}
		})
	}
}
