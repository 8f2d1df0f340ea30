package outcome

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Talk is one connection that a program inside makes, and what it says there: the argument of the attempt "talk". The
// result's Count is the status of the last HTTP answer, its Lines are the bytes that came back, quoted, and the names
// in the certificate if there was one.
type Talk struct {
	By string `json:"by"` // Direct, Connect, SOCKS or Proxy
	// To is whom it is for: HOST:PORT, in any spelling. It is looked up as
	// programs do, or told to the proxy as it stands.
	To string `json:"to,omitempty"`
	// At is an address to connect to instead of what To would lead to.
	At   string `json:"at,omitempty"`
	From string `json:"from,omitempty"` // the address to connect from
	// TLS says whether there is any, and Name the name in it.
	TLS  bool   `json:"tls,omitempty"`
	Name string `json:"name,omitempty"`
	// Hello is a form of the TLS handshake, or empty for the usual one.
	Hello string `json:"hello,omitempty"`
	// Send is what is said, quoted, at once or a byte at a time.
	Send  string `json:"send,omitempty"`
	Slow  bool   `json:"slow,omitempty"`
	Ended bool   `json:"ended,omitempty"` // and that nothing more will be
	// Fields are those of one HTTP/2 request, which is sent instead.
	Fields [][2]string `json:"fields,omitempty"`
}

// Ways of a Talk.
const (
	Direct  = "direct"  // as programs that know of no proxy
	Connect = "connect" // HTTP CONNECT
	SOCKS   = "socks"   // SOCKS5 with a name, or with an address if To has one
	Proxy   = "proxy"   // to the proxy itself
)

// Forms of a TLS handshake.
const (
	HelloBytes     = "bytes"     // in segments of one byte
	HelloFragments = "fragments" // in records of one byte
	HelloLong      = "long"      // more than 16 KiB
	HelloOld       = "old"       // TLS 1.1
	HelloRaw       = "raw"       // the name's bytes as they are; ends after the answer's first
	HelloECH       = "ech"       // with an encrypted name, likewise
)

// Line is the attempt.
func (t Talk) Line() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // it is made of strings
	}
	return "talk " + strings.ReplaceAll(string(b), " ", `\u0020`)
}

// ParseTalk reads what Line wrote, after the word.
func ParseTalk(s string) (t Talk, err error) {
	if err := json.Unmarshal([]byte(s), &t); err != nil {
		return t, err
	}
	if t.Send != "" {
		if t.Send, err = strconv.Unquote(t.Send); err != nil {
			return t, fmt.Errorf("send: %w", err)
		}
	}
	for _, field := range []*string{&t.To, &t.Name} {
		if strings.HasPrefix(*field, `"`) {
			if *field, err = strconv.Unquote(*field); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// Quoted writes bytes so that they stay what they are.
func Quoted(s string) string { return strconv.QuoteToASCII(s) }
