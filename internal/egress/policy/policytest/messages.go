package policytest

import "strings"

// Limits of the gateway for one message head.
const (
	maxFields = 200
	maxBytes  = 64 << 10
)

// Beginnings of the messages.
const (
	get     = "GET / HTTP/1.1\r\nHost: allowed.lab\r\n"
	post    = "POST / HTTP/1.1\r\nHost: allowed.lab\r\n"
	chunked = post + "Transfer-Encoding: chunked\r\n"
)

var long = strings.Repeat("b", maxBytes)

// Unclear are beginnings of connections that no server may accept as requests: implementations read them differently.
// They are for allowed.lab.
var Unclear = map[string]string{
	"leading CRLF":                 "\r\nGET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"leading LF":                   "\nGET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"leading space":                " GET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"bare LF after request line":   "GET / HTTP/1.1\nHost: allowed.lab\r\n\r\n",
	"bare LF after field":          "GET / HTTP/1.1\r\nHost: allowed.lab\n\r\n",
	"bare LF at the end":           get + "\n",
	"bare CR in field":             get + "A: b\rc\r\n\r\n",
	"bare CR in request line":      "GET /\r HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"CR CR LF":                     "GET / HTTP/1.1\r\nHost: allowed.lab\r\r\n\r\n",
	"folded line":                  get + "A: b\r\n c\r\n\r\n",
	"folded line with tab":         get + "A: b\r\n\tc\r\n\r\n",
	"folded first line":            "GET / HTTP/1.1\r\n Host: allowed.lab\r\n\r\n",
	"NUL in field":                 get + "A: b\x00c\r\n\r\n",
	"NUL in target":                "GET /\x00 HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"two spaces":                   "GET  / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"tab for space":                "GET\t/\tHTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"space in target":              "GET /a b HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"fragment":                     "GET /#a HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"backslash":                    "GET /\\a HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"bytes beyond ASCII in target": "GET /\xc3\xbc HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"HTTP/0.9":                     "GET /\r\n\r\n",
	"HTTP/0.9 with version":        "GET / HTTP/0.9\r\nHost: allowed.lab\r\n\r\n",
	"HTTP/1.2":                     "GET / HTTP/1.2\r\nHost: allowed.lab\r\n\r\n",
	"HTTP/2.0":                     "GET / HTTP/2.0\r\nHost: allowed.lab\r\n\r\n",
	"http/1.1":                     "GET / http/1.1\r\nHost: allowed.lab\r\n\r\n",
	"prior knowledge":              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"method in small letters":      "get / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"no Host":                      "GET / HTTP/1.1\r\n\r\n",
	"two Hosts":                    get + "Host: allowed.lab\r\n\r\n",
	"two Hosts that differ":        get + "Host: denied.lab\r\n\r\n",
	"Host with space":              "GET / HTTP/1.1\r\nHost : allowed.lab\r\n\r\n",
	"empty name":                   get + ": a\r\n\r\n",
	"no colon":                     get + "abc\r\n\r\n",
	"TE with space":                post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"CL and TE":                    post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE and CL":                    chunked + "Content-Length: 5\r\n\r\n0\r\n\r\n",
	"two CL":                       post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
	"two CL that differ":           post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\na",
	"list of CL":                   post + "Content-Length: 1, 1\r\n\r\na",
	"CL with sign":                 post + "Content-Length: +1\r\n\r\na",
	"negative CL":                  post + "Content-Length: -1\r\n\r\na",
	"CL in hex":                    post + "Content-Length: 0x1\r\n\r\na",
	"empty CL":                     post + "Content-Length: \r\n\r\na",
	"huge CL":                      post + "Content-Length: 99999999999999999999\r\n\r\na",
	"two TE":                       chunked + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE identity":                  post + "Transfer-Encoding: identity\r\n\r\n",
	"TE unknown":                   post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"TE list":                      post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"TE quoted":                    post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"TE with vertical tab":         post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"TE in HTTP/1.0":               "POST / HTTP/1.0\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"chunk with sign":              chunked + "\r\n+1\r\na\r\n0\r\n\r\n",
	"chunk with 0x":                chunked + "\r\n0x1\r\na\r\n0\r\n\r\n",
	"chunk with space":             chunked + "\r\n1 \r\na\r\n0\r\n\r\n",
	"chunk extension":              chunked + "\r\n1;a=b\r\na\r\n0\r\n\r\n",
	"chunk ends with LF":           chunked + "\r\n1\r\na\n0\r\n\r\n",
	"chunk size ends with LF":      chunked + "\r\n1\na\r\n0\r\n\r\n",
	"chunk longer than it says":    chunked + "\r\n1\r\nab\r\n0\r\n\r\n",
	"chunk overflows":              chunked + "\r\nffffffffffffffffff\r\na\r\n0\r\n\r\n",
	"folded trailer":               chunked + "\r\n0\r\nA: b\r\n c\r\n\r\n",
	"too many fields":              get + strings.Repeat("A: b\r\n", maxFields) + "\r\n",
	"too long a field":             get + "A: " + long + "\r\n\r\n",
	"too long a target":            "GET /" + long + " HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"too long without an end":      "GET /" + long + long,
	"too long trailers":            chunked + "\r\n0\r\n" + strings.Repeat("A: "+long[:1000]+"\r\n", 100) + "\r\n",
	"absolute form, other Host":    "GET http://allowed.lab/ HTTP/1.1\r\nHost: denied.lab\r\n\r\n",
	"absolute form with a user":    "GET http://allowed.lab@denied.lab/ HTTP/1.1\r\nHost: allowed.lab@denied.lab\r\n\r\n",
	"CONNECT with a body": "CONNECT allowed.lab:443 HTTP/1.1\r\nHost: allowed.lab:443\r\n" +
		"Content-Length: 5\r\n\r\nabcde",
	"TLS": "\x16\x03\x01\x00\x05hello\n",
}

// Clear are requests that real clients send.
var Clear = map[string]string{
	"plain":            "GET /a?b=c HTTP/1.1\r\nHost: allowed.lab\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
	"empty value":      get + "A:\r\nB: \t \r\n\r\n",
	"latin 1":          get + "A: \xe4\r\n\r\n",
	"HTTP/1.0":         "GET / HTTP/1.0\r\nHost: allowed.lab\r\n\r\n",
	"body":             post + "Content-Length: 5\r\n\r\nab\r\n\n",
	"empty body":       post + "Content-Length: 0\r\n\r\n",
	"chunks":           post + "transfer-encoding: Chunked\r\n\r\n5\r\nab\r\n\n\r\n00A\r\n0123456789\r\n0\r\n\r\n",
	"trailers":         chunked + "Trailer: A\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n",
	"absolute form":    "GET http://allowed.lab:8080/ HTTP/1.1\r\nHost: ALLOWED.lab:8080\r\n\r\n",
	"slashes in query": "GET /?u=http://a@b/ HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
}
