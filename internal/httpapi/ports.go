package httpapi

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/portstream"
)

// portRoutes carry connections to ports of long-lived sandboxes.
type portRoutes struct{ *edge }

// add adds the routes of ports.
func (s portRoutes) add() {
	schema := s.api.OpenAPI().Components.Schemas.Schema(typeOf[api.PortMessage](), true, "")
	route(s, huma.Operation{OperationID: "connect-port", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/ports/{port}",
		Tags:    []string{"sandboxes"},
		Summary: "Connect to a TCP port of a sandbox",
		Description: "A WebSocket, which is one connection to the port at the sandbox's loopback. Binary messages are what " +
			"either side sends; the text message end says that no more comes from its sender. The peer is a program of the " +
			"sandbox. Where nothing listens at the port, the request is refused.",
		Responses: map[string]*huma.Response{"101": {
			Description: "The connection is a WebSocket; its text messages are these",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}}}},
	}, append([]cove.Code{cove.Unsupported}, processErrors...), s.connect)
}

type portPath struct {
	SandboxPath
	Port int `path:"port" minimum:"1" maximum:"65535" doc:"A TCP port" example:"3000"`
}

// connect is GET /sandboxes/{sandbox}/ports/{port}.
func (s portRoutes) connect(ctx context.Context, in *portPath) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	if !strings.EqualFold(ex.r.Header.Get("Upgrade"), "websocket") {
		return nil, cove.Errorf(cove.InvalidArgument, "a connection to a port is a WebSocket").
			WithHint("use \"cove forward\", or a WebSocket client")
	}
	conn, err := s.Processes.Connect(ctx, ex.who, in.Sandbox, uint16(in.Port))
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.carry(ctx, ex, conn) }}, nil
}

// carry moves what both sides send, from the upgrade until both have ended or one has gone.
func (s portRoutes) carry(ctx context.Context, ex *exchange, inside net.Conn) {
	defer inside.Close()
	outside, err := websocket.Accept(ex.w, ex.r, nil) // it looks at the origin once more
	if err != nil {
		ex.failure = err // and has answered
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the request's ends with the upgrade
	defer cancel()
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := portstream.Carry(ctx, outside, inside); err != nil {
		s.Log.Debug("a connection to a port ended early", "error", err)
	}
}
