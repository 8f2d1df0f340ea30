package httpapi

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gateway/clients"
	"github.com/cove-sandbox/cove/internal/linux/fdpass"
)

// gatewayRoutes serve a gateway of its own: its clients and its health.
type gatewayRoutes struct{ *edge }

// add adds the routes of a gateway of its own.
func (s gatewayRoutes) add() {
	route(s, huma.Operation{OperationID: "register-client", Method: http.MethodPost, Path: "/clients",
		Tags:    []string{"gateway"},
		Summary: "Register a client, or replace its policy",
		Description: "Each client has a listener of its own, which identifies it. The policy of a registered client is " +
			"replaced at once: connections that are no longer allowed are cut before anything new is allowed.",
	}, []cove.Code{cove.NotFound, cove.Conflict, cove.TooLarge, cove.StorageFull, cove.Canceled}, s.registerClient)

	route(s, huma.Operation{OperationID: "list-clients", Method: http.MethodGet, Path: "/clients",
		Tags:        []string{"gateway"},
		Summary:     "List the clients",
		Description: "Each with its policy, and what leads its programs to the way out.",
	}, nil, s.listClients)

	route(s, huma.Operation{OperationID: "remove-client", Method: http.MethodDelete, Path: "/clients/{name}",
		Tags: []string{"gateway"}, DefaultStatus: http.StatusNoContent,
		Summary: "Close a client's way out for good", Description: "Its connections are cut, and its authority is forgotten.",
	}, []cove.Code{cove.NotFound, cove.Conflict, cove.StorageFull, cove.Canceled}, s.removeClient)

	route(s, huma.Operation{OperationID: "change-client", Method: http.MethodPost, Path: "/clients/{name}/network",
		Tags:    []string{"gateway"},
		Summary: "Add to what a client may reach", Description: "At once; connections that are no longer allowed are cut.",
	}, []cove.Code{cove.NotFound, cove.TooLarge, cove.StorageFull, cove.Canceled}, s.changeClient)

	route(s, huma.Operation{OperationID: "get-client-authority", Method: http.MethodGet, Path: "/clients/{name}/ca",
		Tags:        []string{"gateway"},
		Summary:     "Get the certificate of the authority that a client trusts",
		Description: "Made for it alone; the key stays with the gateway.",
	}, []cove.Code{cove.NotFound}, s.clientAuthority)

	route(s, huma.Operation{OperationID: "health", Method: http.MethodGet, Path: "/health", Tags: []string{"server"},
		Security:    []map[string][]string{{}},
		Summary:     "How the gateway is",
		Description: "Without a key.",
	}, nil, s.gatewayHealth)

	handover := huma.Operation{OperationID: "hand-over-sockets", Method: http.MethodPost, Path: "/clients/{name}/sockets",
		Tags:    []string{"gateway"},
		Summary: "Open a transparent client's way out",
		Description: "Over a unix socket, with \"Connection: Upgrade\" and \"Upgrade: " +
			api.SocketsProtocol + "\". After 101 the caller sends one byte with the descriptors of the sockets that it has made " +
			"in the client's network namespace: TCP 127.0.0.1:1, [::1]:1, 127.0.0.1:3128, 127.0.0.1:53, [::1]:53, UDP " +
			"127.0.0.1:53, [::1]:53, in this order. " +
			"The answer is one line of JSON: {}, or an Error. The way is open for as long as the connection is.",
		Responses: map[string]*huma.Response{"101": {Description: "The sockets are waited for"}},
	}
	s.api.OpenAPI().AddOperation(&handover)
	s.mux.HandleFunc(handover.Method+" "+handover.Path, s.takeSockets)
}

type registerInput struct{ Body api.GatewayRegistration }

// registerClient is POST /clients.
func (s gatewayRoutes) registerClient(ctx context.Context, in *registerInput) (*answer[api.GatewayClient], error) {
	c, err := s.Clients.Register(ctx, exchangeOf(ctx).who, Registration(in.Body))
	return &answer[api.GatewayClient]{gatewayClient(c)}, err
}

// listClients is GET /clients.
func (s gatewayRoutes) listClients(ctx context.Context, _ *struct{}) (*answer[api.GatewayClientList], error) {
	list := api.GatewayClientList{Clients: []api.GatewayClient{}}
	for _, c := range s.Clients.List(exchangeOf(ctx).who) {
		list.Clients = append(list.Clients, gatewayClient(c))
	}
	return &answer[api.GatewayClientList]{list}, nil
}

// removeClient is DELETE /clients/{name}.
func (s gatewayRoutes) removeClient(ctx context.Context, in *ClientPath) (*struct{}, error) {
	return nil, s.Clients.Remove(ctx, exchangeOf(ctx).who, in.Name)
}

type clientChangeInput struct {
	ClientPath
	Body api.NetworkChange
}

// changeClient is POST /clients/{name}/network.
func (s gatewayRoutes) changeClient(ctx context.Context, in *clientChangeInput) (*answer[api.NetworkChanged], error) {
	cut, err := s.Clients.Extend(ctx, exchangeOf(ctx).who, in.Name, apispec.Change(in.Body))
	return &answer[api.NetworkChanged]{api.NetworkChanged{Cut: cut}}, err
}

// clientAuthority is GET /clients/{name}/ca.
func (s gatewayRoutes) clientAuthority(ctx context.Context, in *ClientPath) (*answer[api.Authority], error) {
	certificate, err := s.Clients.Certificate(exchangeOf(ctx).who, in.Name)
	return &answer[api.Authority]{api.Authority{Certificate: string(certificate)}}, err
}

// gatewayHealth is GET /health of a gateway.
func (s gatewayRoutes) gatewayHealth(context.Context, *struct{}) (*answer[api.GatewayHealth], error) {
	return &answer[api.GatewayHealth]{api.GatewayHealth(s.Clients.Health())}, nil
}

// handoverTimeout is how long sockets are waited for that were announced.
const handoverTimeout = 10 * time.Second

// takeSockets is POST /clients/{name}/sockets.
func (s gatewayRoutes) takeSockets(w http.ResponseWriter, r *http.Request) {
	ex := exchangeOf(r.Context())
	if !strings.EqualFold(r.Header.Get("Connection"), "upgrade") || r.Header.Get("Upgrade") != api.SocketsProtocol {
		writeError(ex, cove.Errorf(cove.InvalidArgument, "sockets are handed over after an upgrade to %s",
			api.SocketsProtocol).WithHint("use \"cove gateway attach\""))
		return
	}
	hijacked, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(ex, err)
		return
	}
	defer hijacked.Close()
	ex.w.status = http.StatusSwitchingProtocols
	hijacked.SetDeadline(time.Now().Add(handoverTimeout))
	if _, err := hijacked.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
		api.SocketsProtocol + "\r\n\r\n")); err != nil {
		return
	}
	sockets, err := receive(hijacked)
	var session *clients.Session
	if err == nil {
		session, err = s.Clients.Attach(ex.who, r.PathValue("name"), sockets)
	}
	if err != nil {
		ex.failure = err
		json.NewEncoder(hijacked).Encode(body(ex, err))
		return
	}
	defer session.End()
	if _, err := hijacked.Write([]byte("{}\n")); err != nil {
		return
	}
	hijacked.SetDeadline(time.Time{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		hijacked.Read(make([]byte, 1)) // the caller says nothing more
	}()
	select {
	case <-gone:
	case <-session.Done():
		hijacked.Close()
		<-gone
	}
}

// receive waits for the descriptors of a way out.
func receive(c net.Conn) ([]*os.File, error) {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return nil, cove.Errorf(cove.InvalidArgument, "sockets are handed over a unix socket only")
	}
	sockets, err := fdpass.Receive(unix, len(engine.RouteListeners()))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the sockets cannot be taken: %w", err)
	}
	return sockets, nil
}
