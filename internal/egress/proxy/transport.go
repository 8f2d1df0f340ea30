package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// newTransport returns the transport for a sandbox's connections to origins. Connections are kept by scheme, host and
// port, and never shared between hosts, HTTP/2 included. Those for endpoints are judged differently and kept in a
// separate transport.
func (s *Server) newTransport(roots *x509.CertPool, endpoint bool) *http.Transport {
	config := &tls.Config{
		RootCAs:            roots,
		MinVersion:         tls.VersionTLS12,
		VerifyConnection:   refuseWeakKey,
		ClientSessionCache: tls.NewLRUClientSessionCache(64),
	}
	to := func(address string) (policy.Request, error) {
		host, port, err := policy.ParseAuthority(address, 0)
		return policy.Request{Layer: policy.LayerDial, Host: host, Port: port, Endpoint: endpoint}, err
	}
	if !endpoint {
		s.early = newEarly(s, config)
	}
	return &http.Transport{
		Proxy: nil, // ignore the environment
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			r, err := to(address)
			if err != nil {
				return nil, err
			}
			return s.dial(ctx, r, nil, s.decides)
		},
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			r, err := to(address)
			if err != nil {
				return nil, err
			}
			protocols := bothVersions
			switch {
			case ctx.Value(version1Key{}) != nil:
				protocols = onlyVersion1
			case !endpoint:
				if c, err := s.early.take(ctx, destination{r.Host, r.Port}); c != nil || err != nil {
					return c, err
				}
			}
			c, err := s.dial(ctx, r, nil, s.decides)
			if err != nil {
				return nil, err
			}
			return secure(ctx, c, r.Host, config, protocols, s.timeouts.Hello)
		},
		DisableCompression:     true, // the client negotiates compression
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        s.timeouts.KeepAlive,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: s.timeouts.Idle,
		},
	}
}
