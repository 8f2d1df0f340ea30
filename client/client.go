// Package client speaks Cove's HTTP API: over TCP, over a unix socket, or over any connection that the caller dials.
//
//	c, err := client.New(client.Options{Address: "http://127.0.0.1:8080", Key: key})
//	e, err := c.Execute(ctx, api.ExecuteRequest{Language: "python", Code: "print(1)"})
//
// Errors are *cove.Error with the server's code and hint. The client does not retry: an execution may have happened
// although its answer was lost.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// maxAnswer bounds a JSON answer and one event of a stream, in bytes: an
// execution with all its output, every byte of it escaped.
const maxAnswer = 64 << 20

// Options configure the connection to a server.
type Options struct {
	// Address is "http://host:port", "https://host:port" or "unix:/path".
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
		var d net.Dialer
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	if o.Dial != nil {
		if base == "" {
			base = "http://localhost"
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) }
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, cove.Errorf(cove.InvalidArgument, "%q is not an address of a server", o.Address).
			WithHint("write http://host:port, https://host:port or unix:/path")
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
	var e api.Execution
	err := c.call(ctx, http.MethodPost, "/execute", req, &e)
	return e, err
}

// Get returns an execution's record, output included.
func (c *Client) Get(ctx context.Context, id string) (api.Execution, error) {
	var e api.Execution
	path, err := executionPath(id)
	if err != nil {
		return e, err
	}
	err = c.call(ctx, http.MethodGet, path, nil, &e)
	return e, err
}

// Kill ends a running execution and returns its record.
func (c *Client) Kill(ctx context.Context, id string) (api.Execution, error) {
	var e api.Execution
	path, err := executionPath(id)
	if err != nil {
		return e, err
	}
	err = c.call(ctx, http.MethodDelete, path, nil, &e)
	return e, err
}

// ChangeNetwork extends the network permission of a running execution, at once.
func (c *Client) ChangeNetwork(ctx context.Context, id string, change api.NetworkChange) (api.NetworkChanged, error) {
	var done api.NetworkChanged
	path, err := executionPath(id)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/network", change, &done)
	return done, err
}

// Authority returns the certificate authority that a running execution trusts.
func (c *Client) Authority(ctx context.Context, id string) (api.Authority, error) {
	var a api.Authority
	path, err := executionPath(id)
	if err != nil {
		return a, err
	}
	err = c.call(ctx, http.MethodGet, path+"/ca", nil, &a)
	return a, err
}

// Holds returns the requests that wait for an approval, oldest first: of one execution, or of all.
func (c *Client) Holds(ctx context.Context, execution string) ([]api.Hold, error) {
	q := query{}
	q.set("execution", execution)
	var l api.HoldList
	err := c.call(ctx, http.MethodGet, q.of("/network/holds"), nil, &l)
	return l.Holds, err
}

// AnswerHold answers a waiting request.
func (c *Client) AnswerHold(ctx context.Context, id string, a api.HoldAnswer) error {
	parsed, err := cove.ParseHoldID(id)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "/network/holds/"+string(parsed), a, nil)
}

// Approvals returns the approvals stored for policies, newest first.
func (c *Client) Approvals(ctx context.Context) ([]api.Approval, error) {
	var l api.ApprovalList
	err := c.call(ctx, http.MethodGet, "/network/approvals", nil, &l)
	return l.Approvals, err
}

// Revoke deletes an approval.
func (c *Client) Revoke(ctx context.Context, id string) error {
	parsed, err := cove.ParseApprovalID(id)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, "/network/approvals/"+string(parsed), nil, nil)
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
	var l api.ExecutionList
	err := c.call(ctx, http.MethodGet, q.of("/executions"), nil, &l)
	return l, err
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
	var l api.AuditList
	err := c.call(ctx, http.MethodGet, q.of("/audit"), nil, &l)
	return l, err
}

// VerifyAudit checks whether the audit log is unmodified. A modified log is a result, not an error.
func (c *Client) VerifyAudit(ctx context.Context) (api.AuditVerification, error) {
	var v api.AuditVerification
	err := c.call(ctx, http.MethodGet, "/audit/verify", nil, &v)
	return v, err
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
	var l api.DecisionList
	err := c.call(ctx, http.MethodGet, q.of("/network/decisions"), nil, &l)
	return l, err
}

// query holds the query parameters of a list, without unset ones.
type query url.Values

func (q query) set(name, value string) {
	if value != "" {
		url.Values(q).Set(name, value)
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

func (q query) of(path string) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + url.Values(q).Encode()
}

// Runtimes lists the runtimes of the server.
func (c *Client) Runtimes(ctx context.Context) ([]api.Runtime, error) {
	var l api.RuntimeList
	err := c.call(ctx, http.MethodGet, "/runtimes", nil, &l)
	return l.Runtimes, err
}

const healthPath = "/health"

// Health returns the server's state. A degraded server answers without an error.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	var h api.Health
	err := c.call(ctx, http.MethodGet, healthPath, nil, &h)
	return h, err
}

// executionPath returns an execution's path, and refuses anything except an id.
func executionPath(id string) (string, error) {
	parsed, err := cove.ParseExecutionID(id)
	if err != nil {
		return "", err
	}
	return "/executions/" + string(parsed), nil
}

// call sends body as JSON and decodes the answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return cove.Errorf(cove.InvalidArgument, "cannot encode the request: %w", err)
		}
		r = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, path, "application/json", r)
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
func (c *Client) send(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	return c.sendAfter(ctx, method, path, contentType, body, "")
}

// sendAfter is send for streams that continue after an event.
func (c *Client) sendAfter(ctx context.Context, method, path, contentType string, body io.Reader,
	lastEvent string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
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
	degraded := path == healthPath && resp.StatusCode == http.StatusServiceUnavailable
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
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the method and the address are redundant
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

// failure returns the error of an unsuccessful response.
func failure(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e api.Error
	if err != nil || json.Unmarshal(b, &e) != nil || e.Error == "" {
		return cove.Errorf(codeOfStatus(resp.StatusCode), "the server answered %d %s", resp.StatusCode,
			http.StatusText(resp.StatusCode)).
			WithHint("check that the address is a Cove server's")
	}
	return remoteError(e, resp.StatusCode)
}

// remoteError returns the server's error.
func remoteError(e api.Error, status int) *cove.Error {
	code := cove.Code(e.Code)
	if !known(code) {
		code = codeOfStatus(status)
	}
	message := e.Error
	if e.Hint != "" {
		message = strings.TrimSuffix(message, fmt.Sprintf(" (%s)", e.Hint))
	}
	return &cove.Error{Code: code, Message: message, Hint: e.Hint}
}

func known(code cove.Code) bool {
	for _, c := range cove.Codes {
		if c == code {
			return true
		}
	}
	return false
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
