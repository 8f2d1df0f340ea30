package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
)

const budgetHint = "write it like requests=100,tokens=200000,cost=1.50"

// ParseBudget parses requests=N,tokens=N,cost=DOLLARS, each optional. Errors: InvalidArgument.
func ParseBudget(s string) (cove.Budget, error) {
	var b cove.Budget
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		bad := func() (cove.Budget, error) {
			return cove.Budget{}, cove.Errorf(cove.InvalidArgument, "%.80q is no budget", part).WithHint(budgetHint)
		}
		if seen[name] {
			return bad()
		}
		seen[name] = true
		switch name {
		case "requests", "tokens":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n <= 0 {
				return bad()
			}
			if name == "requests" {
				b.Requests = n
			} else {
				b.Tokens = n
			}
		case "cost":
			d, err := strconv.ParseFloat(strings.TrimPrefix(value, "$"), 64)
			if err != nil || !(d > 0) || math.IsInf(d, 0) {
				return bad()
			}
			b.Cost = d
		default:
			return bad()
		}
	}
	return b, nil
}

// Exhausted is the error of a budget that is used up.
type Exhausted struct {
	Of    string // whose budget
	What  string // requests, tokens, cost
	Limit string
	Used  string
}

func (e *Exhausted) Error() string {
	return fmt.Sprintf("the budget of %s is used up: %s of %s %s", e.Of, e.Used, e.Limit,
		map[string]string{"requests": "requests", "tokens": "tokens", "cost": "dollars"}[e.What])
}

// Sum returns the use of all providers.
func Sum(used []ProviderUsage) (sum Usage) {
	for _, u := range used {
		sum = sum.Plus(u.Usage)
	}
	return sum
}

// Spare refuses more use of models where a budget has been used up; of says whose it is. Errors: *Exhausted.
func Spare(b cove.Budget, of string, used Usage) error {
	dollars := func(d float64) string { return strconv.FormatFloat(math.Round(d*1e4)/1e4, 'f', -1, 64) }
	switch {
	case b.Requests > 0 && used.Requests >= b.Requests:
		return &Exhausted{of, "requests", fmt.Sprint(b.Requests), fmt.Sprint(used.Requests)}
	case b.Tokens > 0 && used.Tokens() >= b.Tokens:
		return &Exhausted{of, "tokens", fmt.Sprint(b.Tokens), fmt.Sprint(used.Tokens())}
	case b.Cost > 0 && used.Cost >= b.Cost:
		return &Exhausted{of, "cost", dollars(b.Cost), dollars(used.Cost)}
	}
	return nil
}

// Ledger tracks use against a budget: that of one sandbox, or of all sandboxes of a caller. A request is counted at its
// beginning, and its expected use is reserved until its end; one that does not fit beside the others waits for them.
// Near its end a budget therefore serves one request at a time, and is overrun by the last one at most, once the size
// of requests is known.
type Ledger struct {
	budget cove.Budget
	of     string

	mu       sync.Mutex
	used     map[string]Usage // guarded by mu; by provider
	aside    Usage            // guarded by mu; reserved for concurrent requests
	largest  Usage            // guarded by mu; use of the largest request so far
	densest  float64          // guarded by mu; most tokens for a byte that a request for embeddings has had so far
	underway int              // guarded by mu
	changed  chan struct{}    // guarded by mu; closed when a request has ended
}

// NewLedger returns a ledger for the budget of a sandbox.
func NewLedger(b cove.Budget) *Ledger { return Resume(b, "this sandbox", nil) }

// Resume returns a ledger for a budget with what has been used of it; of says whose it is.
func Resume(b cove.Budget, of string, used []ProviderUsage) *Ledger {
	l := &Ledger{budget: b, of: of, used: map[string]Usage{}, changed: make(chan struct{})}
	for _, u := range used {
		l.used[u.Provider] = u.Usage
	}
	return l
}

// Limits reports whether tokens or dollars are limited, for which the answers' usage is needed.
func (l *Ledger) Limits() bool { return l.budget.Tokens > 0 || l.budget.Cost > 0 }

// LimitsCost reports whether dollars are limited, for which prices are needed.
func (l *Ledger) LimitsCost() bool { return l.budget.Cost > 0 }

// Call is a request in progress.
type Call struct {
	ledger   *Ledger
	provider *Provider
	aside    Usage
	embedded int64 // bytes of a request for embeddings; 0 for others and where they are unknown
	once     sync.Once
}

const usualAnswer = 4096 // tokens reserved for an answer while no size is known

// Begin admits a request of size bytes for a model at an endpoint of a provider; -1 and "" where these are unknown. It
// may wait for others. Errors: *Exhausted, or the cause of ctx's end.
func (l *Ledger) Begin(ctx context.Context, p *Provider, e Endpoint, model string, size int64) (*Call, error) {
	for {
		l.mu.Lock()
		if err := Spare(l.budget, l.of, l.total()); err != nil {
			l.mu.Unlock()
			return nil, err
		}
		need := expected(e, size, l.largest, l.densest)
		need.Cost = max(need.Cost, p.cost(model, Usage{Input: need.Input, Output: need.Output}, true))
		if l.underway == 0 || l.fits(need) {
			c := &Call{ledger: l, provider: p, aside: need}
			if e.embeds() {
				c.embedded = max(0, size)
			}
			l.underway++
			l.aside = l.aside.Plus(need)
			u := l.used[p.Name]
			u.Requests++
			l.used[p.Name] = u
			l.mu.Unlock()
			return c, nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, cove.Errorf(cove.Canceled, "the program that asked has gone: %w", context.Cause(ctx))
		}
	}
}

// expected returns the use to reserve for a request of size bytes; largest is that of the largest one so far, and
// densest the most tokens for a byte of a request for embeddings. An answer with embeddings has no tokens.
func expected(e Endpoint, size int64, largest Usage, densest float64) Usage {
	if e.embeds() && size >= 0 {
		return Usage{Input: max((size+3)/4, int64(math.Ceil(float64(size)*densest)))}
	}
	return Usage{Input: max(size/4, largest.Input+largest.CacheRead+largest.CacheWrite),
		Output: max(usualAnswer, largest.Output), Cost: largest.Cost}
}

// total returns the use of all providers; l.mu must be held.
func (l *Ledger) total() (t Usage) {
	for _, u := range l.used {
		t = t.Plus(u)
	}
	return t
}

func (l *Ledger) fits(need Usage) bool {
	t, b := l.total().Plus(l.aside).Plus(need), l.budget
	return (b.Tokens == 0 || t.Tokens() <= b.Tokens) && (b.Cost == 0 || t.Cost <= b.Cost)
}

// Aside returns what is reserved for the request until its end.
func (c *Call) Aside() Usage { return c.aside }

// Undo ends a request that was not made. Later calls of it and of End are ignored.
func (c *Call) Undo() {
	c.once.Do(func() {
		l := c.ledger
		l.mu.Lock()
		defer l.mu.Unlock()
		l.used[c.provider.Name] = l.used[c.provider.Name].Plus(Usage{Requests: -1})
		c.free()
	})
}

// free gives back what is reserved; the ledger's mu must be held.
func (c *Call) free() {
	l := c.ledger
	l.aside = l.aside.Minus(c.aside)
	if l.underway--; l.underway == 0 {
		l.aside = Usage{} // no rounding remainder of dollars
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// End records the request's use of a model, and returns what it has added, with its cost. Later calls are ignored.
func (c *Call) End(model string, u Usage) (added Usage) {
	c.once.Do(func() {
		l := c.ledger
		l.mu.Lock()
		defer l.mu.Unlock()
		u.Cost = c.provider.cost(model, u, l.LimitsCost())
		u.Requests = 0 // counted at the beginning
		added = u
		l.used[c.provider.Name] = l.used[c.provider.Name].Plus(u)
		l.largest = Usage{Input: max(l.largest.Input, u.Input), Output: max(l.largest.Output, u.Output),
			CacheRead:  max(l.largest.CacheRead, u.CacheRead),
			CacheWrite: max(l.largest.CacheWrite, u.CacheWrite), Cost: max(l.largest.Cost, u.Cost)}
		if c.embedded > 0 {
			l.densest = max(l.densest, float64(u.Input)/float64(c.embedded))
		}
		c.free()
	})
	return added
}

// Used returns the use of each provider, sorted by name.
func (l *Ledger) Used() []ProviderUsage {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []ProviderUsage
	for name, u := range l.used {
		all = append(all, ProviderUsage{name, u})
	}
	slices.SortFunc(all, func(a, b ProviderUsage) int { return strings.Compare(a.Provider, b.Provider) })
	return all
}

// ProviderUsage is the use of one provider. Its JSON is part of the records of executions.
type ProviderUsage struct {
	Provider string `json:"provider"`
	Usage
}

// Refusal is an answer of the gateway in a provider's own form, so that clients raise a readable error.
type Refusal struct {
	Status  int // determines the type of the error
	Message string
	Detail  map[string]string // for programs, under "cove"
}

func (r *Refusal) Error() string { return r.Message }

// Refuse returns a refusal with a message.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Message: fmt.Sprintf(format, args...)}
}

// RefusalOf returns an exhausted budget in the form of providers' quota errors.
func RefusalOf(err error) (*Refusal, bool) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r, true
	}
	e, ok := errors.AsType[*Exhausted](err)
	if !ok {
		return nil, false
	}
	return &Refusal{Status: http.StatusTooManyRequests, Message: e.Error(),
		Detail: map[string]string{"error": "budget_exhausted", "budget": e.What, "limit": e.Limit, "used": e.Used}}, true
}

// types returns the type of an error in Anthropic's terms, its type and code in OpenAI's, Google's status, and the name
// of AWS's exception. None of these means that clients should try again, except where the server itself is at fault.
func types(status int) (anthropic, openAI, code, google, aws string) {
	switch status {
	case http.StatusTooManyRequests:
		return "rate_limit_error", "insufficient_quota", "insufficient_quota", "RESOURCE_EXHAUSTED",
			"ServiceQuotaExceededException"
	case http.StatusUnauthorized:
		return "authentication_error", "invalid_request_error", "invalid_api_key", "UNAUTHENTICATED",
			"UnrecognizedClientException"
	case http.StatusForbidden:
		return "permission_error", "invalid_request_error", "permission_denied", "PERMISSION_DENIED",
			"AccessDeniedException"
	case http.StatusServiceUnavailable:
		return "api_error", "server_error", "server_error", "UNAVAILABLE", "ServiceUnavailableException"
	case http.StatusNotFound:
		return "not_found_error", "invalid_request_error", "not_found", "NOT_FOUND", "ResourceNotFoundException"
	}
	return "invalid_request_error", "invalid_request_error", "invalid_request", "INVALID_ARGUMENT", "ValidationException"
}

const awsType = "X-Amzn-Errortype"

// Header returns the answer's header. It tells clients not to retry: the budget will not have changed.
func (r *Refusal) Header(k Kind) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "X-Should-Retry": {"false"}}
	if k == Bedrock {
		_, _, _, _, aws := types(r.Status)
		h.Set(awsType, aws)
	}
	return h
}

// Body returns the answer's body, in JSON.
func (r *Refusal) Body(k Kind) []byte {
	anthropic, openAI, code, google, aws := types(r.Status)
	type quota struct {
		ID          string `json:"quotaId"`
		Description string `json:"description"`
	}
	type detail struct {
		Type       string  `json:"@type"`
		Violations []quota `json:"violations"`
	}
	type fault struct {
		Type    string   `json:"type,omitempty"`
		Message string   `json:"message"`
		Code    any      `json:"code,omitempty"`
		Status  string   `json:"status,omitempty"`
		Details []detail `json:"details,omitempty"`
	}
	body := struct {
		Type    string            `json:"type,omitempty"`
		Name    string            `json:"__type,omitempty"`
		Message string            `json:"message,omitempty"`
		Error   *fault            `json:"error,omitempty"`
		Cove    map[string]string `json:"cove,omitempty"`
	}{Cove: r.Detail}
	switch k {
	case Anthropic:
		body.Type, body.Error = "error", &fault{Type: anthropic, Message: r.Message}
	case Gemini, Vertex:
		body.Error = &fault{Message: r.Message, Code: r.Status, Status: google}
		if r.Status == http.StatusTooManyRequests { // clients wait for quotas, except those of a day
			body.Error.Details = []detail{{"type.googleapis.com/google.rpc.QuotaFailure",
				[]quota{{"CoveBudgetPerDay", r.Message}}}}
		}
	case Bedrock:
		body.Name, body.Message = aws, r.Message
	default:
		body.Error = &fault{Type: openAI, Message: r.Message, Code: code}
	}
	b, _ := json.Marshal(body) // texts and numbers, so it cannot fail
	return append(b, '\n')
}

// RefusedKey reports whether an answer refuses the credential of a request, rather than the request.
func RefusedKey(status int, h http.Header) bool {
	if status == http.StatusForbidden { // AWS's
		name, _, _ := strings.Cut(h.Get(awsType), ":")
		return slices.Contains([]string{"UnrecognizedClientException", "InvalidSignatureException",
			"ExpiredTokenException", "IncompleteSignatureException", "MissingAuthenticationTokenException",
			"InvalidClientTokenId"}, name)
	}
	return status == http.StatusUnauthorized
}
