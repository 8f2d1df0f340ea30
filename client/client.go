// Package client speaks Cove's HTTP API: over TCP, over a unix socket, over ssh, or over any connection that the caller
// dials.
//
//	c, err := client.New(client.Options{Address: "http://127.0.0.1:8080", Key: key})
//	e, err := c.Execute(ctx, api.ExecuteRequest{Language: "python", Code: "print(1)"})
//
// Errors are *cove.Error with the server's code and hint. The client does not retry: an execution may have happened
// although its answer was lost.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/localsocket"
)

// maxAnswer bounds a JSON answer and one event of a stream, in bytes: an
// execution with all its output, every byte of it escaped.
const maxAnswer = 64 << 20

// Options configure the connection to a server.
type Options struct {
	// Address is "http://host:port", "https://host:port", "unix:/path" or
	// "ssh://[user@]host[:port]", which runs the ssh program of this machine.
	Address string
	// Key is sent as a bearer token when it is not empty.
	Key string
	// TLS is for https addresses; nil is the system's trust.
	TLS *tls.Config
	// Dial replaces the network; Address then only names the server.
	Dial func(ctx context.Context) (net.Conn, error)
}

// Client is a client of one server. Its methods may be called concurrently.
type Client struct {
	base   string
	socket string // path, if the address is a unix socket
	key    string
	http   *http.Client
	socks  *http.Client // for WebSockets, which are upgrades of HTTP/1.1
}

// New returns a Client. It does not connect.
func New(o Options) (*Client, error) {
	transport := &http.Transport{TLSClientConfig: o.TLS, DisableCompression: true, MaxIdleConnsPerHost: 8,
		IdleConnTimeout:   30 * time.Second,
		ForceAttemptHTTP2: o.Dial == nil && strings.HasPrefix(o.Address, "https:")}
	base := strings.TrimSuffix(o.Address, "/")
	path, ok := strings.CutPrefix(o.Address, "unix:")
	if !ok {
		path = ""
	}
	if ok {
		if path == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "the address %q names no socket",
				o.Address).WithHint("write unix:/path/to/cove.sock")
		}
		base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return localsocket.Dial(ctx, path)
		}
	}
	if o.Dial == nil && strings.HasPrefix(o.Address, "ssh:") {
		host, err := parseSSH(o.Address)
		if err != nil {
			return nil, err
		}
		base, o.Dial = "http://localhost", host.dial
	}
	if o.Dial != nil {
		base = cmp.Or(base, "http://localhost")
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) }
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, cove.Errorf(cove.InvalidArgument, "%q is not an address of a server", o.Address).
			WithHint("write http://host:port, https://host:port, unix:/path or ssh://host")
	}
	// A redirect would pass the key and the code to another server.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	plain := transport.Clone()
	plain.ForceAttemptHTTP2, plain.Protocols = false, new(http.Protocols)
	plain.Protocols.SetHTTP1(true)
	return &Client{base: base, socket: path, key: o.Key,
		http:  &http.Client{Transport: transport, CheckRedirect: noRedirect},
		socks: &http.Client{Transport: plain, CheckRedirect: noRedirect}}, nil
}

// Close drops idle connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.socks.CloseIdleConnections()
}

// Execute runs a snippet and waits for its end.
func (c *Client) Execute(ctx context.Context, req api.ExecuteRequest) (api.Execution, error) {
	return ask[api.Execution](ctx, c, http.MethodPost, at("/execute"), req)
}

// Get returns an execution's record, output included.
func (c *Client) Get(ctx context.Context, id string) (api.Execution, error) {
	return ask[api.Execution](ctx, c, http.MethodGet, executionPath(id), nil)
}

// Kill ends a running execution and returns its record.
func (c *Client) Kill(ctx context.Context, id string) (api.Execution, error) {
	return ask[api.Execution](ctx, c, http.MethodDelete, executionPath(id), nil)
}

// ChangeNetwork extends the network permission of a running execution, at once.
func (c *Client) ChangeNetwork(ctx context.Context, id string, change api.NetworkChange) (api.NetworkChanged, error) {
	return ask[api.NetworkChanged](ctx, c, http.MethodPost, executionPath(id).below("/network"), change)
}

// Authority returns the certificate authority that a running execution trusts.
func (c *Client) Authority(ctx context.Context, id string) (api.Authority, error) {
	return ask[api.Authority](ctx, c, http.MethodGet, executionPath(id).below("/ca"), nil)
}

// Holds returns the requests that wait for an approval, oldest first: of one execution, or of all.
func (c *Client) Holds(ctx context.Context, execution string) ([]api.Hold, error) {
	q := query{}
	q.set("execution", execution)
	l, err := ask[api.HoldList](ctx, c, http.MethodGet, at("/network/holds").with(q), nil)
	return l.Holds, err
}

// AnswerHold answers a waiting request.
func (c *Client) AnswerHold(ctx context.Context, id string, a api.HoldAnswer) error {
	parsed, err := cove.ParseHoldID(id)
	return c.call(ctx, http.MethodPost, endpoint{"/network/holds/" + string(parsed), err}, a, nil)
}

// Approvals returns the approvals stored for policies, newest first.
func (c *Client) Approvals(ctx context.Context) ([]api.Approval, error) {
	l, err := ask[api.ApprovalList](ctx, c, http.MethodGet, at("/network/approvals"), nil)
	return l.Approvals, err
}

// Revoke deletes an approval.
func (c *Client) Revoke(ctx context.Context, id string) error {
	parsed, err := cove.ParseApprovalID(id)
	return c.call(ctx, http.MethodDelete, endpoint{"/network/approvals/" + string(parsed), err}, nil, nil)
}

// ListOptions select executions; zero fields select everything.
type ListOptions struct {
	Language string
	Status   api.Status
	Labels   map[string]string // all of them
	Since    time.Time         // inclusive
	Until    time.Time         // exclusive
	Cursor   string            // NextCursor of the previous page
	Limit    int               // rows in a page; 0: the server's default
}

// List returns a page of executions, newest first, without their output.
func (c *Client) List(ctx context.Context, o ListOptions) (api.ExecutionList, error) {
	q := query{}
	q.set("language", o.Language)
	q.set("status", string(o.Status))
	q.labels(o.Labels)
	q.page(o.Since, o.Until, o.Cursor, o.Limit)
	return ask[api.ExecutionList](ctx, c, http.MethodGet, at("/executions").with(q), nil)
}

// AuditOptions select audit records; zero fields select everything.
type AuditOptions struct {
	Action  string
	Object  string // an execution's id, a path, a route, an engine
	Verdict string
	Since   time.Time // inclusive
	Until   time.Time // exclusive
	Cursor  string    // NextCursor of the previous page
	Limit   int       // rows in a page; 0: the server's default
}

// Audit returns a page of the audit log, newest first.
func (c *Client) Audit(ctx context.Context, o AuditOptions) (api.AuditList, error) {
	q := query{}
	q.set("action", o.Action)
	q.set("object", o.Object)
	q.set("verdict", o.Verdict)
	q.page(o.Since, o.Until, o.Cursor, o.Limit)
	return ask[api.AuditList](ctx, c, http.MethodGet, at("/audit").with(q), nil)
}

// VerifyAudit checks whether the audit log is unmodified. A modified log is a result, not an error.
func (c *Client) VerifyAudit(ctx context.Context) (api.AuditVerification, error) {
	return ask[api.AuditVerification](ctx, c, http.MethodGet, at("/audit/verify"), nil)
}

// DecisionOptions select decisions of the gateway; zero fields select everything.
type DecisionOptions struct {
	Execution string
	Sandbox   string // id of the sandbox
	Host      string
	Verdict   api.Verdict
	Since     time.Time // inclusive
	Until     time.Time // exclusive
	Cursor    string    // NextCursor of the previous page
	Limit     int       // rows in a page; 0: the server's default
}

func (o DecisionOptions) query() query {
	q := query{}
	q.set("execution", o.Execution)
	q.set("sandbox", o.Sandbox)
	q.set("host", o.Host)
	q.set("verdict", string(o.Verdict))
	return q
}

// Decisions returns a page of the gateway's decisions on egress of sandboxes, newest first.
func (c *Client) Decisions(ctx context.Context, o DecisionOptions) (api.DecisionList, error) {
	q := o.query()
	q.page(o.Since, o.Until, o.Cursor, o.Limit)
	return ask[api.DecisionList](ctx, c, http.MethodGet, at("/network/decisions").with(q), nil)
}

// query holds the query parameters of a list, without unset ones.
type query url.Values

func (q query) set(name, value string) {
	if value != "" {
		url.Values(q).Set(name, value)
	}
}

func (q query) flag(name string, on bool) {
	if on {
		q.set(name, "true")
	}
}

func (q query) labels(labels map[string]string) {
	for k, v := range labels {
		url.Values(q).Add("label", k+"="+v)
	}
}

func (q query) page(since, until time.Time, cursor string, limit int) {
	if !since.IsZero() {
		q.set("since", since.UTC().Format(time.RFC3339Nano))
	}
	if !until.IsZero() {
		q.set("until", until.UTC().Format(time.RFC3339Nano))
	}
	q.set("cursor", cursor)
	if limit != 0 {
		q.set("limit", strconv.Itoa(limit))
	}
}

// endpoint is a path of the API, or the reason why a name cannot be in one.
type endpoint struct {
	path string
	err  error
}

func at(path string) endpoint { return endpoint{path: path} }

// below returns the endpoint of a part of it, or of an action on it.
func (e endpoint) below(path string) endpoint { return endpoint{e.path + path, e.err} }

// item returns the endpoint of a member of a collection. It refuses names that would change the path; what describes
// the right ones.
func (e endpoint) item(name, what string) endpoint {
	if e.err == nil && (name == "" || name == "." || name == "..") {
		e.err = cove.Errorf(cove.InvalidArgument, "%q is not %s", name, what)
	}
	return e.below("/" + url.PathEscape(name))
}

// with returns the endpoint with parameters.
func (e endpoint) with(q query) endpoint {
	if len(q) == 0 {
		return e
	}
	return e.below("?" + url.Values(q).Encode())
}

// Runtimes lists the runtimes of the server.
func (c *Client) Runtimes(ctx context.Context) ([]api.Runtime, error) {
	l, err := ask[api.RuntimeList](ctx, c, http.MethodGet, at("/runtimes"), nil)
	return l.Runtimes, err
}

// Keys lists the API keys of the server, with what each may do and has used. The holder of a key gets that key alone.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	l, err := ask[api.KeyList](ctx, c, http.MethodGet, at("/keys"), nil)
	return l.Keys, err
}

const healthPath = "/health"

// Health returns the server's state. A degraded server answers without an error.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	return ask[api.Health](ctx, c, http.MethodGet, at(healthPath), nil)
}

// executionPath returns an execution's path, and refuses anything except an id.
func executionPath(id string) endpoint {
	parsed, err := cove.ParseExecutionID(id)
	return endpoint{"/executions/" + string(parsed), err}
}

// ask is call for an answer of one type.
func ask[T any](ctx context.Context, c *Client, method string, to endpoint, body any) (answer T, err error) {
	err = c.call(ctx, method, to, body, &answer)
	return answer, err
}

// call sends body as JSON and decodes the answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, method string, to endpoint, body, result any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return cove.Errorf(cove.InvalidArgument, "cannot encode the request: %w", err)
		}
		r = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, to, "application/json", r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if result == nil {
		return nil
	}
	return decode(resp.Body, result)
}

// send returns the response if its status is a success, else its error.
func (c *Client) send(ctx context.Context, method string, to endpoint, contentType string,
	body io.Reader) (*http.Response, error) {
	return c.sendAfter(ctx, method, to, contentType, body, "")
}

// sendAfter is send for streams that continue after an event.
func (c *Client) sendAfter(ctx context.Context, method string, to endpoint, contentType string, body io.Reader,
	lastEvent string) (*http.Response, error) {
	if to.err != nil {
		return nil, to.err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+to.path, body)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if lastEvent != "" {
		req.Header.Set("Last-Event-ID", lastEvent)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	degraded := to.path == healthPath && resp.StatusCode == http.StatusServiceUnavailable
	if resp.StatusCode >= 200 && resp.StatusCode < 300 || degraded {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, failure(resp)
}

func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cove.Errorf(cove.Canceled, "the request was given up: %w", context.Cause(ctx))
	}
	if e, ok := errors.AsType[*cove.Error](err); ok {
		return e // of the dialing
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the method and the address are redundant
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return cove.Errorf(cove.Unavailable, "the certificate of the server is not trusted: %w", err).
			WithHint("if it is the right server, put the certificate of its authority into a file, " +
				"and name that in SSL_CERT_FILE")
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return cove.Errorf(cove.Unavailable, "the server does not speak HTTPS").
			WithHint("write http:// in its address; keys and code cross the network in clear then")
	}
	return cove.Errorf(cove.Unavailable, "the server does not answer: %w", err).
		WithHint("check its address, and that \"cove serve\" is running")
}

func decode(r io.Reader, result any) error {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return cove.Errorf(cove.Unavailable, "the answer broke off: %w", err)
	}
	if len(b) > maxAnswer {
		return cove.Errorf(cove.Unavailable, "the answer is larger than %d MiB", maxAnswer>>20)
	}
	if err := json.Unmarshal(b, result); err != nil {
		return cove.Errorf(cove.Unavailable, "the answer is not what a Cove server sends: %w", err).
			WithHint("check that the address is a Cove server's")
	}
	return nil
}

// wantsTLS matches how net/http, nginx and Apache answer a request in clear where they speak TLS.
var wantsTLS = regexp.MustCompile("to an HTTPS server|to HTTPS port|to an SSL-enabled server port")

// failure returns the error of an unsuccessful response.
func failure(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e api.Error
	if err != nil || json.Unmarshal(b, &e) != nil || e.Error == "" {
		if resp.StatusCode == http.StatusBadRequest && wantsTLS.Match(b) {
			return cove.Errorf(cove.Unavailable, "the server speaks HTTPS only").WithHint("write https:// in its address")
		}
		return cove.Errorf(codeOfStatus(resp.StatusCode), "the server answered %d %s", resp.StatusCode,
			http.StatusText(resp.StatusCode)).
			WithHint("check that the address is a Cove server's")
	}
	failed := remoteError(e, resp.StatusCode)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		failed.RetryAfter = time.Duration(seconds) * time.Second
	}
	return failed
}

// remoteError returns the server's error.
func remoteError(e api.Error, status int) *cove.Error {
	code := cove.Code(e.Code)
	if !slices.Contains(cove.Codes, code) {
		code = codeOfStatus(status)
	}
	message := e.Error
	if e.Hint != "" {
		message = strings.TrimSuffix(message, fmt.Sprintf(" (%s)", e.Hint))
	}
	return &cove.Error{Code: code, Message: message, Hint: e.Hint}
}

// codeOfStatus returns the code for answers without one of Cove's: a proxy's, or a newer server's.
func codeOfStatus(status int) cove.Code {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return cove.InvalidArgument
	case http.StatusUnauthorized:
		return cove.Unauthenticated
	case http.StatusForbidden:
		return cove.Forbidden
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return cove.NotFound
	case http.StatusConflict:
		return cove.Conflict
	case http.StatusRequestEntityTooLarge:
		return cove.TooLarge
	case http.StatusTooManyRequests:
		return cove.Overloaded
	case http.StatusInternalServerError:
		return cove.Internal
	}
	return cove.Unavailable
}
