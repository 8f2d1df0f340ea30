package credential

import (
	"cmp"
	"encoding/base64"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Form is the place and notation of a value in a request.
type Form struct {
	header        string // canonical; empty for a query parameter
	before, after string // around the value, in the header
	basic         bool   // the header is "Basic" with user and value
	user          string // of basic; empty: the source's
	parameter     string // of the query
	others        []string
	also, token   string // a list header, and its required element
	scope         scope  // of a signature; zero: the value itself is set
}

// scope is the part of AWS that a signature is for. The zero value is none: nothing is signed.
type scope struct{ region, service string }

// login is a value and, if the source returns it, its user. Keys of AWS sign requests, and may end.
type login struct {
	user    string
	value   secret.Value
	signs   bool
	session secret.Value // of keys of AWS, or zero
	expires time.Time    // of keys of AWS, or zero
}

func (l login) equal(m login) bool {
	return l.user == m.user && l.value.Equal(m.value) && l.session.Equal(m.session)
}

// carriers are headers and parameters that authenticate. A request that gets a credential keeps none of the sandbox's
// own: with its own key a sandbox could use another account through an allowed host.
var carriers = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "Apikey", "X-Goog-Api-Key",
	"Access-Token", "X-Auth-Token", "Private-Token"}

// refusedHeaders are headers with another meaning, which cannot carry a credential.
var refusedHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade",
	"Content-Type", "Content-Encoding", "Expect", "Keep-Alive", "Accept-Encoding"}

// Bearer returns the form of a bearer token.
func Bearer() Form { return Form{header: "Authorization", before: "Bearer "} }

// Header returns the form of a header that is the value, and strip, further headers and parameters that authenticate.
func Header(name string, strip ...string) Form { return Form{header: name, others: strip} }

// headerForm returns the form of a header with a template, in which {} is the value.
func headerForm(name, template string) (Form, error) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if !httpguts.ValidHeaderFieldName(name) || slices.Contains(refusedHeaders, name) {
		return Form{}, cove.Errorf(cove.InvalidArgument, "%.40q is no header for a credential", name)
	}
	template = cmp.Or(template, "{}")
	before, after, found := strings.Cut(template, "{}")
	if !found || strings.Contains(after, "{}") || !visible(strings.ReplaceAll(before+after, " ", "")) {
		return Form{}, cove.Errorf(cove.InvalidArgument,
			"a template has {} once, where the value stands").WithHint(`for example "Token {}"`)
	}
	return Form{header: name, before: before, after: after}, nil
}

// alsoForm adds a required element of a list header to a form: "NAME: TOKEN".
func alsoForm(f Form, text string) (Form, error) {
	name, token, found := strings.Cut(text, ":")
	name, token = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(token)
	if !found || !httpguts.ValidHeaderFieldName(name) || slices.Contains(refusedHeaders, name) ||
		slices.Contains(carriers, name) || token == "" || !visible(token) || strings.Contains(token, ",") {
		return f, cove.Errorf(cove.InvalidArgument, "also is a list header, and a required element").WithHint(
			`for example "X-Features: tokens"`)
	}
	f.also, f.token = name, token
	return f, nil
}

func basicForm(user string) (Form, error) {
	if strings.ContainsAny(user, ":") || !printable(user) {
		return Form{}, cove.Errorf(cove.InvalidArgument, "a user has no colon and no control characters")
	}
	return Form{header: "Authorization", basic: true, user: user}, nil
}

func queryForm(name string) (Form, error) {
	if name == "" || url.QueryEscape(name) != name {
		return Form{}, cove.Errorf(cove.InvalidArgument, "a parameter has letters, digits, hyphens, underscores and dots")
	}
	return Form{parameter: name}, nil
}

// place returns the part of a request that the form occupies.
func (f Form) place() string {
	if f.header != "" {
		return "header " + f.header
	}
	return "parameter " + strings.ToLower(f.parameter)
}

// accepts reports whether the login fits this form. Values that could begin another header never do.
func (f Form) accepts(l login) error {
	if l.signs != (f.scope != scope{}) && l.signs {
		return cove.Errorf(cove.InvalidArgument, "it is a pair of keys of AWS, which are for providers of the kind bedrock")
	}
	if l.signs {
		return nil
	}
	v := l.value.Reveal()
	if f.basic {
		if _, err := basicForm(f.userOf(l)); err != nil || f.userOf(l) == "" || !printable(v) {
			return cove.Errorf(cove.InvalidArgument, "it has no user, or one with a colon, or control characters").
				WithHint("set user")
		}
		return nil
	}
	if !visible(v) {
		return cove.Errorf(cove.InvalidArgument, "it has characters that do not belong into a header")
	}
	return nil
}

func (f Form) userOf(l login) string { return cmp.Or(f.user, l.user) }

// strip removes the form's header or parameter and all other carriers from header, trailer and URL, in every spelling
// that a server may accept.
func (f Form) strip(h *http.Request) {
	names := append(slices.Clone(carriers), f.others...)
	names = append(names, f.header, f.parameter)
	for i, n := range names {
		names[i] = plain(n)
	}
	carries := func(name string) bool { n := plain(name); return n != "" && slices.Contains(names, n) }
	for _, fields := range []http.Header{h.Header, h.Trailer} {
		maps.DeleteFunc(fields, func(name string, _ []string) bool { return carries(name) })
	}
	h.URL.User = nil
	h.URL.RawQuery = withoutParameters(h.URL.RawQuery, carries)
}

// plain returns a name as the loosest server compares it: without case, and with hyphen for underscore (CGI).
func plain(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
}

// withoutParameters removes parameters from a raw query. Some servers accept ";" for "&", and "key[]" for "key".
func withoutParameters(query string, unwanted func(name string) bool) string {
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		return slices.ContainsFunc(strings.Split(pair, ";"), func(p string) bool { return unwanted(parameterName(p)) })
	})
	return strings.Join(kept, "&")
}

func parameterName(pair string) string {
	name, _, _ := strings.Cut(pair, "=")
	if decoded, err := url.QueryUnescape(name); err == nil {
		name = decoded
	}
	name, _, _ = strings.Cut(name, "[")
	name, _, _ = strings.Cut(name, "\x00")
	return name
}

func (f Form) set(h *http.Request, l login) {
	value := l.value.Reveal()
	if f.also != "" {
		list := strings.Join(h.Header.Values(f.also), ",")
		if !slices.ContainsFunc(strings.Split(list, ","), func(t string) bool { return strings.TrimSpace(t) == f.token }) {
			h.Header.Set(f.also, strings.TrimPrefix(list+","+f.token, ","))
		}
	}
	switch {
	case f.basic:
		h.Header.Set(f.header, "Basic "+base64.StdEncoding.EncodeToString([]byte(f.userOf(l)+":"+value)))
	case f.header != "":
		h.Header.Set(f.header, f.before+value+f.after)
	default:
		pair := f.parameter + "=" + url.QueryEscape(value)
		if h.URL.RawQuery != "" {
			pair = h.URL.RawQuery + "&" + pair
		}
		h.URL.RawQuery = pair
	}
}

func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 })
}
