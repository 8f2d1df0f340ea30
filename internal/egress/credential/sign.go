package credential

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Digest reads the body of a request to its end, and returns its SHA-256 in hexadecimal digits. The request has the
// same body afterwards, and its length.
type Digest func(*http.Request) (string, error)

// Signature returns the form that signs requests with keys of AWS (Signature Version 4). A source with a single value
// has a bearer token in it, as Bedrock's API keys are.
func Signature(region, service string) Form {
	f := Bearer()
	f.scope = scope{region, service}
	f.others = signed
	return f
}

// signed are the headers and parameters of a signature, beside Authorization: those that the sandbox has sent are
// removed, in whichever of the two places.
var signed = []string{"X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256", "X-Amz-Algorithm",
	"X-Amz-Credential", "X-Amz-Expires", "X-Amz-Signedheaders", "X-Amz-Signature", "X-Amz-Region-Set"}

// sign signs a request: its method, URL, type, body and AWS's own headers, which have to be signed. Headers that later
// stages change are not part of a signature.
func (f Form) sign(h *http.Request, l login, digest Digest, now time.Time) error {
	if digest == nil {
		return cove.Errorf(cove.Internal, "a request that is to be signed has a body that cannot be read ahead")
	}
	sum, err := digest(h)
	if err != nil {
		return err
	}
	url := *h.URL
	alike := &http.Request{Method: h.Method, URL: &url, Host: h.Host, Header: http.Header{},
		ContentLength: h.ContentLength}
	for name, values := range h.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz") {
			alike.Header[name] = values
		}
	}
	keys := aws.Credentials{AccessKeyID: l.user, SecretAccessKey: l.value.Reveal()}
	if !l.session.IsZero() {
		keys.SessionToken = l.session.Reveal()
	}
	// A signer remembers the keys that it has derived, which a value that is used no more must not be among.
	if err := v4.NewSigner().SignHTTP(h.Context(), keys, alike, sum, f.scope.service, f.scope.region, now); err != nil {
		return cove.Errorf(cove.Internal, "the request cannot be signed: %w", err)
	}
	h.URL.RawQuery = alike.URL.RawQuery
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		if value := alike.Header.Values(name); len(value) > 0 {
			h.Header[name] = value
		}
	}
	return nil
}

// keysOfAWS parses keys as AWS's programs print them (credential_process, "aws configure export-credentials"). ok is
// false if the text is none of that. Errors: InvalidArgument, without a value.
func keysOfAWS(text string) (l login, ok bool, err error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return login{}, false, nil
	}
	var keys struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      string
	}
	if json.Unmarshal([]byte(text), &keys) != nil || keys.AccessKeyID == "" && keys.SecretAccessKey == "" {
		return login{}, false, nil
	}
	l = login{user: keys.AccessKeyID, value: secret.New(keys.SecretAccessKey), signs: true}
	secrets := []string{keys.SecretAccessKey, keys.SessionToken}
	if keys.SessionToken == "" {
		secrets = secrets[:1]
	}
	for _, part := range secrets {
		if n := len(part); !visible(part) || n > redact.MaxLength || n < redact.MinLength {
			return l, true, cove.Errorf(cove.InvalidArgument,
				"a key of AWS in it has %d bytes, or characters that no key has", n)
		}
	}
	if keys.AccessKeyID == "" || !visible(keys.AccessKeyID) || strings.ContainsAny(keys.AccessKeyID, "/,=") {
		return l, true, cove.Errorf(cove.InvalidArgument, "it has no AccessKeyId, or one that no key of AWS has")
	}
	if keys.SessionToken != "" {
		l.session = secret.New(keys.SessionToken)
	}
	if keys.Expiration != "" {
		if l.expires, err = time.Parse(time.RFC3339, keys.Expiration); err != nil {
			return l, true, cove.Errorf(cove.InvalidArgument, "its Expiration is no time (RFC 3339)")
		}
	}
	return l, true, nil
}

// early is how long before their end keys are read again.
const early = time.Minute

// ended reports whether keys have ended, or are about to.
func (l login) ended(now time.Time) bool {
	return !l.expires.IsZero() && !now.Before(l.expires.Add(-early))
}
