//go:build linux

package daemon_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/await"
)

// TestEngineOpenedLaterIsSwept: a container that a killed process has left goes once another one uses its engine.
func TestEngineOpenedLaterIsSwept(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	cfg := settings(t)
	cfg.Engine = "native"
	inDocker := func(code string) api.ExecuteRequest {
		return api.ExecuteRequest{Language: "sh", Code: code, Spec: api.Spec{Engine: "docker"}}
	}
	killed := serve(t, cfg)
	said := make(chan struct{})
	go killed.ExecuteStream(context.Background(), inDocker("echo begun; sleep 1000"), client.Stream{Stdout: closing(said)})
	<-said
	left := containers(t)
	if len(left) == 0 {
		t.Fatal("no container runs")
	}
	killed.kill()

	p := serve(t, cfg)
	if _, err := p.Execute(t.Context(), inDocker("true")); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the container of the killed server goes", func() bool {
		for id := range containers(t) {
			if left[id] {
				return false
			}
		}
		return true
	})
}

// closing is a writer that closes a channel when it is first written to.
type closing chan struct{}

func (c closing) Write(p []byte) (int, error) {
	select {
	case <-c:
	default:
		close(c)
	}
	return len(p), nil
}

// containers returns the ids of Cove's containers, also of those that have ended.
func containers(t *testing.T) map[string]bool {
	t.Helper()
	daemon := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"))
		}}}
	r, err := daemon.Get("http://docker/containers/json?" + url.Values{"all": {"1"}}.Encode())
	must(t, err)
	defer r.Body.Close()
	var all []struct {
		ID    string `json:"Id"`
		Names []string
	}
	must(t, json.NewDecoder(r.Body).Decode(&all))
	ids := map[string]bool{}
	for _, c := range all {
		if strings.HasPrefix(strings.Join(c.Names, ""), "/cove-") {
			ids[c.ID] = true
		}
	}
	return ids
}
