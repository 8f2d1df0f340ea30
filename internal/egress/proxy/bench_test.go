package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkIntercepted measures the gateway's processor time for one intercepted request of 1 KiB on a kept connection
// (cpu-µs/op; 1e6 is one second of a core). Client and origin are other processes.
func BenchmarkIntercepted(b *testing.B) {
	for _, version := range []string{"http1", "http2"} {
		b.Run(version, func(b *testing.B) {
			l := newLab(b)
			l.permit("allowed.lab")
			l.quiet = true
			l.serveElsewhere("allowed.lab", "203.0.113.1")
			run := l.clientElsewhere(b, version)
			run(100)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime()
			run(b.N)
			b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inProgram starts this test binary as another program, which reads setup as JSON and then communicates over its
// standard streams.
func inProgram(b *testing.B, role string, setup any) (io.Writer, *json.Decoder) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	if err := json.NewEncoder(in).Encode(setup); err != nil {
		b.Fatal(err)
	}
	return in, json.NewDecoder(out)
}

const roleVariable = "COVE_TEST_PROXY_ROLE"

// roles are the programs of inProgram.
var roles = map[string]func(in *json.Decoder, out *json.Encoder){"origin": originRole, "client": clientRole}

type keyPair struct{ Certificate, Key []byte }

func originRole(in *json.Decoder, out *json.Encoder) {
	var pair keyPair
	in.Decode(&pair)
	key, _ := x509.ParsePKCS8PrivateKey(pair.Key)
	body := bytes.Repeat([]byte("x"), 1024)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Certificate}, PrivateKey: key}},
		NextProtos:   []string{"h2", "http/1.1"},
	})
	if err != nil {
		panic(err)
	}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) }))
	out.Encode(ln.Addr().String())
	in.Decode(new(int)) // until the other side ends
}

type clientSetup struct {
	Proxy, Version string
	Roots          []byte
}

func clientRole(in *json.Decoder, out *json.Encoder) {
	var setup clientSetup
	in.Decode(&setup)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(setup.Roots)
	transport := &http.Transport{
		Proxy:               http.ProxyURL(&url.URL{Scheme: "http", Host: setup.Proxy}),
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 8,
	}
	if setup.Version == "http1" {
		oneProtocol(transport)
	}
	client := &http.Client{Transport: transport}
	for n := 0; in.Decode(&n) == nil; {
		var workers sync.WaitGroup
		failed := make([]string, 8)
		for w := range failed {
			workers.Go(func() {
				for range (n + len(failed) - 1 - w) / len(failed) {
					res, err := client.Get("https://allowed.lab/some/path?x=y")
					if err != nil {
						failed[w] = err.Error()
						return
					}
					if k, _ := io.Copy(io.Discard, res.Body); k != 1024 || res.StatusCode != 200 {
						failed[w] = fmt.Sprint(res.Status, " ", k)
					}
					res.Body.Close()
				}
			})
		}
		workers.Wait()
		out.Encode(strings.Join(failed, ""))
	}
}

// serveElsewhere runs an origin in another process.
func (l *lab) serveElsewhere(name, address string) {
	b := l.t.(*testing.B)
	leaf := l.world.leaf(b, nil, name)
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		b.Fatal(err)
	}
	_, out := inProgram(b, "origin", keyPair{leaf.Certificate[0], key})
	var at string
	if err := out.Decode(&at); err != nil {
		b.Fatal(err)
	}
	l.at(name, address)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[mustAddrPort(address+":443")] = at
}

// clientElsewhere runs a client in another process.
func (l *lab) clientElsewhere(b *testing.B, version string) (run func(n int)) {
	in, out := inProgram(b, "client", clientSetup{l.explicit, version, l.inside.pem})
	return func(n int) {
		fmt.Fprintln(in, n)
		var failure string
		if err := out.Decode(&failure); err != nil || failure != "" {
			b.Fatal(err, failure)
		}
	}
}
