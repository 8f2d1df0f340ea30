package model

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Refusal is an answer of the gateway in a provider's own form, so that clients raise a readable error.
type Refusal struct {
	Status  int
	Type    string // of the error, in Anthropic's terms
	Message string
	Detail  map[string]string // for programs, under "cove"
}

func (r *Refusal) Error() string { return r.Message }

// RefusalOf returns an exhausted budget in the form of providers' quota errors.
func RefusalOf(err error) (*Refusal, bool) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r, true
	}
	e, ok := errors.AsType[*Exhausted](err)
	if !ok {
		return nil, false
	}
	return &Refusal{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Message: e.Error(),
		Detail: map[string]string{"error": "budget_exhausted", "budget": e.What, "limit": e.Limit, "used": e.Used}}, true
}

// openAITypes maps Anthropic's terms to OpenAI's.
var openAITypes = map[string][2]string{ // type, code
	"rate_limit_error":      {"insufficient_quota", "insufficient_quota"},
	"permission_error":      {"invalid_request_error", "permission_denied"},
	"not_found_error":       {"invalid_request_error", "not_found"},
	"invalid_request_error": {"invalid_request_error", "invalid_request"},
}

// Header returns the answer's header. It tells clients not to retry: the budget will not have changed.
func (r *Refusal) Header() http.Header {
	return http.Header{"Content-Type": {"application/json"}, "X-Should-Retry": {"false"}}
}

// Body returns the answer's body, in JSON.
func (r *Refusal) Body(k Kind) []byte {
	type fault struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    string `json:"code,omitempty"`
	}
	body := struct {
		Type  string            `json:"type,omitempty"`
		Error fault             `json:"error"`
		Cove  map[string]string `json:"cove,omitempty"`
	}{Type: "error", Error: fault{Type: r.Type, Message: r.Message}, Cove: r.Detail}
	if k == OpenAI {
		words := openAITypes[r.Type]
		body.Type, body.Error.Type, body.Error.Code = "", words[0], words[1]
	}
	b, _ := json.Marshal(body) // strings only, so it cannot fail
	return append(b, '\n')
}
