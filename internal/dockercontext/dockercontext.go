// Package dockercontext finds the Docker daemon that the docker command uses: that of DOCKER_HOST, else that of the
// current context, which "docker context use" chooses.
package dockercontext

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Endpoint is the address of a daemon, and how it is reached.
type Endpoint struct {
	Context string // the name of the context that says so; empty when the environment does, or the usual socket is meant
	Host    string // an address, as unix:///run/docker.sock; empty is the usual socket
	TLS     *TLS   // of a context, nil for none
}

// TLS says how a daemon's certificate is checked, and what is shown to it.
type TLS struct {
	CA, Cert, Key string // files; empty for none
	SkipVerify    bool   // the daemon's certificate is not checked, as the context says
}

// Config returns what a client of the daemon needs.
func (t TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.SkipVerify}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Cert, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// String names the endpoint in messages.
func (e Endpoint) String() string {
	if e.Context == "" {
		return e.Host
	}
	return fmt.Sprintf("%s (context %q)", e.Host, e.Context)
}

// usual is the context of the usual socket, which has no files.
const usual = "default"

// Current returns the endpoint that the docker command would use in an environment. Errors: InvalidArgument when the
// context cannot be read, Unsupported when its daemon cannot be reached by Cove.
func Current(getenv func(string) string) (Endpoint, error) {
	if host := getenv("DOCKER_HOST"); host != "" {
		return Endpoint{Host: host}, nil
	}
	dir := getenv("DOCKER_CONFIG")
	if home := getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".docker")
	}
	name, from := getenv("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	if name == "" && dir != "" {
		from = filepath.Join(dir, "config.json")
		text, err := os.ReadFile(from)
		if errors.Is(err, fs.ErrNotExist) {
			return Endpoint{}, nil
		}
		var config struct{ CurrentContext string }
		if err = cmp.Or(err, json.Unmarshal(text, &config)); err != nil {
			return Endpoint{}, cove.Errorf(cove.InvalidArgument, "%s cannot be read, which names the current Docker context: %w",
				from, err).WithHint("repair it, or set DOCKER_HOST")
		}
		name = config.CurrentContext
	}
	if name == "" || name == usual {
		return Endpoint{}, nil
	}
	e, err := read(filepath.Join(dir, "contexts"), name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, cove.Errorf(cove.InvalidArgument, "there is no Docker context %q, which %s names", name, from).
			WithHint(`choose one of "docker context ls" with "docker context use", or set DOCKER_HOST`)
	case cove.ErrorCode(err) == cove.Unsupported, err == nil:
		return e, err
	}
	return e, cove.Errorf(cove.InvalidArgument, "the Docker context %q, which %s names, cannot be used: %w", name,
		from, err).
		WithHint(`look at it with "docker context inspect", choose another with "docker context use", or set DOCKER_HOST`)
}

// read reads a context of a store. Its files are named by the digest of its name. Errors: fs.ErrNotExist when there is
// no such context.
func read(store, name string) (Endpoint, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	text, err := os.ReadFile(filepath.Join(store, "meta", id, "meta.json"))
	if err != nil {
		return Endpoint{}, err
	}
	host, skip, err := parse(name, text)
	if err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{Context: name, Host: host}
	t := TLS{SkipVerify: skip}
	for file, to := range map[string]*string{"ca.pem": &t.CA, "cert.pem": &t.Cert, "key.pem": &t.Key} {
		path := filepath.Join(store, "tls", id, "docker", file)
		switch _, err := os.Stat(path); {
		case err == nil:
			*to = path
		case !errors.Is(err, fs.ErrNotExist):
			return Endpoint{}, err
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return Endpoint{}, errors.New("it has one of cert.pem and key.pem without the other")
	}
	if t != (TLS{}) {
		e.TLS = &t
	}
	return e, nil
}

// parse returns the address of a context's daemon, of the text of its meta.json. Errors: Unsupported for one that Cove
// cannot reach.
func parse(name string, text []byte) (host string, skip bool, err error) {
	var meta struct {
		Name      string
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return "", false, fmt.Errorf("meta.json: %w", err)
	}
	if meta.Name != name {
		return "", false, fmt.Errorf("its meta.json is of the context %q", meta.Name)
	}
	docker, ok := meta.Endpoints["docker"]
	if !ok || docker.Host == "" {
		return "", false, errors.New("it names no Docker daemon")
	}
	for _, scheme := range []string{"unix://", "tcp://", "ssh://"} {
		if strings.HasPrefix(docker.Host, scheme) {
			return docker.Host, docker.SkipTLSVerify, nil
		}
	}
	return "", false, cove.Errorf(cove.Unsupported, "the Docker context %q has its daemon at %q, which Cove cannot reach",
		name, docker.Host).WithHint("choose one whose daemon is at unix://, tcp:// or ssh:// " +
		`with "docker context use", or set DOCKER_HOST`)
}
