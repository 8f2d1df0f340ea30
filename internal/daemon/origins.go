package daemon

import (
	"context"
	"io"
	"net/http"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/gateway/outlet"
)

// origins is the way to the URLs that a Dockerfile adds: through the gateway, with the network of the build's commands.
type origins struct {
	outlet  outlet.Outlet
	network egress.Network
	object  cove.ExecutionID // by which the gateway's decisions are found
}

// Get implements origin.Getter.
func (o origins) Get(ctx context.Context, address string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || r.URL.Host == "" {
		return nil, cove.Errorf(cove.InvalidArgument, "%.200q is not a URL", address)
	}
	if o.network.Mode == "" || o.network.Mode == cove.NetworkNone {
		return nil, unreachable(r.URL.Host, "--allow "+r.URL.Hostname())
	}
	s := spec(cove.MachineOwner(), "", string(o.object), o.network)
	s.Object = string(o.object)
	client, err := o.outlet.Client(s)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if denied := client.Denied(); len(denied) > 0 {
		if err == nil {
			response.Body.Close()
		}
		client.Close()
		return nil, unreachable(denied[0].Place, denied[0].Flag)
	}
	if err != nil {
		client.Close()
		return nil, cove.Errorf(cove.Unavailable, "cannot fetch %.200s: %w", address, err)
	}
	response.Body = &routed{response.Body, client}
	return response, nil
}

func unreachable(place, flag string) error {
	return cove.Errorf(cove.Forbidden, "the policy of the build does not let it reach %.200s", place).
		WithHint("allow it: %s", flag)
}

// routed is the body of a response, with the route that goes when it is closed.
type routed struct {
	io.ReadCloser
	client *outlet.Client
}

func (r *routed) Close() error {
	err := r.ReadCloser.Close()
	r.client.Close()
	return err
}
