package modeltest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// AWSKeys are keys that sign requests to AWS.
type AWSKeys struct{ ID, Secret, Session string }

// Check verifies the signature of a request as a server of AWS does, in its own words and with no library of theirs:
// what it says is signed, by these keys, for a region and service, now. body is the request's.
//
// Source: docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html.
func (k AWSKeys) Check(r *http.Request, body []byte, region, service string) error {
	const algorithm = "AWS4-HMAC-SHA256"
	values := r.Header.Values("Authorization")
	if len(values) != 1 || !strings.HasPrefix(values[0], algorithm+" ") {
		return fmt.Errorf("it is not signed: %q", values)
	}
	said := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(values[0], algorithm+" "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		said[name] = value
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 5*time.Minute {
		return fmt.Errorf("it is of another time: %q", r.Header.Get("X-Amz-Date"))
	}
	day := at.Format("20060102")
	scope := strings.Join([]string{day, region, service, "aws4_request"}, "/")
	if said["Credential"] != k.ID+"/"+scope {
		return fmt.Errorf("it is for %q, not %q", said["Credential"], k.ID+"/"+scope)
	}
	if got := r.Header.Get("X-Amz-Security-Token"); got != k.Session {
		return fmt.Errorf("the session's token is %q", got)
	}
	names := strings.Split(said["SignedHeaders"], ";")
	if !slices.IsSorted(names) || !slices.Contains(names, "host") {
		return fmt.Errorf("the headers %q are signed", names)
	}
	for name := range r.Header {
		if low := strings.ToLower(name); strings.HasPrefix(low, "x-amz-") && !slices.Contains(names, low) {
			return fmt.Errorf("%s is not signed", name)
		}
	}
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	query := strings.Split(r.URL.RawQuery, "&") // which has nothing that needs another encoding
	slices.Sort(query)
	sum := sha256.Sum256(body)
	canonical := strings.Join([]string{r.Method, encodedTwice(path),
		strings.Join(query, "&"), headers.String(), said["SignedHeaders"], hex.EncodeToString(sum[:])}, "\n")
	hashed := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + k.Secret)
	for _, part := range []string{day, region, service, "aws4_request",
		strings.Join([]string{algorithm, r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(hashed[:])}, "\n")} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if got := hex.EncodeToString(key); got != said["Signature"] {
		return fmt.Errorf("the signature is %s, not %s, of\n%s", said["Signature"], got, canonical)
	}
	return nil
}

// encodedTwice encodes a path as it was sent once more: all but the unreserved characters of RFC 3986, and slashes.
func encodedTwice(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
