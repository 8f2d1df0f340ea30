package adversary

import (
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// echoes are forms in which an origin sends back what it was sent.
var echoes = map[string]func(w http.ResponseWriter, value string){
	"body":        func(w http.ResponseWriter, v string) { io.WriteString(w, v) },
	"header":      func(w http.ResponseWriter, v string) { w.Header().Set("X-Echo", "a "+v+" b") },
	"header name": func(w http.ResponseWriter, v string) { w.Header().Set("X-"+v, "a") },
	"cookie":      func(w http.ResponseWriter, v string) { w.Header().Set("Set-Cookie", "k="+v+"; Path=/") },
	"location": func(w http.ResponseWriter, v string) {
		w.Header().Set("Location", "https://evil.lab/?k="+v)
		w.WriteHeader(302)
	},
	"not found": func(w http.ResponseWriter, v string) { http.Error(w, "no such key: "+v, 404) },
	"error":     func(w http.ResponseWriter, v string) { http.Error(w, "bad key: "+v, 500) },
	"unauthorized": func(w http.ResponseWriter, v string) {
		w.Header().Set("Www-Authenticate", `Bearer error="`+v+`"`)
		w.WriteHeader(401)
	},
	"trailer": func(w http.ResponseWriter, v string) {
		io.WriteString(w, "x")
		w.Header().Set(http.TrailerPrefix+"X-Echo", v)
	},
	"pieces": func(w http.ResponseWriter, v string) { inPieces(w, v, 7) },
	"events": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Type", "text/event-stream")
		inPieces(w, "data: "+v+"\n\n", 1)
	},
	"gzip": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, v)
		z.Close()
	},
	"gzip twice": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Encoding", "gzip, gzip")
		o := gzip.NewWriter(w)
		z := gzip.NewWriter(o)
		io.WriteString(z, v)
		z.Close()
		o.Close()
	},
	"deflate": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Encoding", "deflate")
		z := zlib.NewWriter(w)
		io.WriteString(z, v)
		z.Close()
	},
	"raw deflate": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Encoding", "deflate")
		z, _ := flate.NewWriter(w, 9)
		io.WriteString(z, v)
		z.Close()
	},
	"zstd": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Encoding", "zstd")
		z, _ := zstd.NewWriter(w)
		io.WriteString(z, v)
		z.Close()
	},
	"unknown": func(w http.ResponseWriter, v string) { w.Header().Set("Content-Encoding", "br"); io.WriteString(w, v) },
	"gRPC":    func(w http.ResponseWriter, v string) { w.Header().Set("Grpc-Encoding", "gzip"); io.WriteString(w, v) },
	"part": func(w http.ResponseWriter, v string) {
		w.Header().Set("Content-Range", "bytes 0-9/100")
		w.WriteHeader(206)
		io.WriteString(w, v)
	},
	"JSON": func(w http.ResponseWriter, v string) {
		json.NewEncoder(w).Encode(map[string]string{"headers": v, "pair": "somebody:" + v})
	},
	"early": func(w http.ResponseWriter, v string) {
		w.Header().Set("Link", "<https://evil.lab/"+v+">; rel=preload")
		w.WriteHeader(103)
		w.WriteHeader(200)
	},
	"among padding": func(w http.ResponseWriter, v string) {
		io.WriteString(w, strings.Repeat("a", 16<<10-5)+v+strings.Repeat("b", 100))
	},
}

func inPieces(w http.ResponseWriter, text string, size int) {
	for len(text) > 0 {
		n := min(size, len(text))
		io.WriteString(w, text[:n])
		http.NewResponseController(w).Flush()
		text = text[n:]
	}
}

func reflected(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	var arrived atomic.Int64
	c.internet().Page("/bound/echo", func(w http.ResponseWriter, r *http.Request) {
		v, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if v == value {
			arrived.Add(1)
		}
		how, _ := url.QueryUnescape(r.URL.RawQuery)
		if echo := echoes[how]; echo != nil {
			echo(w, v)
			return
		}
		io.WriteString(w, "it is "+spellings(v)[how]+" here")
	})
	asked := 0
	ways := bound("key.lab")
	ask := func(how string) {
		for _, e := range ways {
			asked++
			a := b.get(e, "key.lab", "/bound/echo?"+url.QueryEscape(how), "Accept-Encoding: br, gzip, zstd", "Range: bytes=0-9")
			if got := betrays(a.text, value); got != "" || a.Outcome != outcome.Succeeded || a.Count == 0 {
				c.Errorf("HOLE or not tested: %s, echoed as %s, comes as %q: %s", e.name, how, got, a)
			}
		}
	}
	for how := range echoes {
		ask(how)
	}
	for how := range spellings(value) {
		ask(how)
	}
	if int(arrived.Load()) != asked {
		c.Errorf("not tested: the value arrived %d times of %d", arrived.Load(), asked)
	}
	for _, r := range c.internet().Requests() {
		if r.Header.Get("Range") != "" || strings.Contains(r.Header.Get("Accept-Encoding"), "br") {
			c.Errorf("the origin was asked for what could not be searched: %v", r.Header)
		}
	}
	// And the same answers from where the value does not belong are as they are.
	c.internet().Page("/free/echo", func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "it is "+r.URL.RawQuery)
	})
	for _, e := range ways {
		if a := b.get(e, "key.lab", "/free/echo?nothing"); !strings.Contains(a.text, "it is nothing") {
			c.Errorf("not tested: %s: %s", e.name, a)
		}
	}
	c.remark("not found are values that an origin reverses, encrypts or archives; a host that does so is no place for a " +
		"credential")
}

// hops: what is for the next hop goes no further, and nothing is added that tells of the inside.
func hops(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	c.internet().Forget()
	for _, e := range everyEntry("key.lab") {
		for _, method := range []string{"TRACE", "TRACK"} {
			a := b.say(e, e.request(method, "key.lab", "/bound/x", "Max-Forwards: 0"))
			b.stays(method+" "+e.name, a)
			if betrays(a.text, value) != "" {
				c.Errorf("HOLE: %s, %s: %s", method, e.name, a)
			}
		}
	}
	b.quiet("key.lab")
	for _, e := range everyEntry("key.lab") {
		c.internet().Forget()
		a := b.get(e, "key.lab", "/bound/x", "Proxy-Authorization: Basic c2VjcmV0", "Proxy-Connection: keep-alive",
			"Keep-Alive: 5", "TE: deflate", "Connection: X-One, close", "X-One: 1",
			"Http2-Settings: AAAA", "Upgrade: h2c", "X-Two: 2")
		seen := c.internet().Requests()
		if !a.ok() || len(seen) != 1 {
			c.Errorf("not tested: %s: %s", e.name, a)
			continue
		}
		for name := range seen[0].Header {
			if !slices.Contains([]string{"X-Two", "Authorization", "Accept-Encoding"}, name) {
				c.Errorf("HOLE: %s: the origin got %s: %q", e.name, name, seen[0].Header[name])
			}
		}
	}
}

func copies(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	placeholder := b.route.Env()["LAB_TOKEN"]
	for _, e := range bound("key.lab") {
		for _, header := range [][]string{
			nil, {"Authorization: Bearer " + placeholder}, {"authorization: Bearer mine"},
			{"AUTHORIZATION: mine", "Authorization: Bearer mine"}, {"Authorization: Bearer mine, Bearer " + placeholder},
			{"Authorization:"}, {"Authorization: Basic bWluZTptaW5l"}, {"X-Api-Key: mine"}, {"X_Api_Key: mine", "Api-Key: mine"},
			{"Proxy-Authorization: Bearer mine"}, {"Private-Token: mine"},
			{"Connection: Authorization"}, {"Connection: close, authorization", "Authorization: Bearer mine"},
		} {
			c.internet().Forget()
			a := b.get(e, "key.lab", "/bound/x?access_token=mine&api_key=mine&q=1", header...)
			seen := c.internet().Requests()
			if !a.ok() || len(seen) != 1 {
				c.Errorf("not tested: %s, %v: %s", e.name, header, a)
				continue
			}
			all := fmt.Sprint(seen[0].Header, seen[0].Target)
			if got := seen[0].Header["Authorization"]; !slices.Equal(got, []string{"Bearer " + value}) ||
				strings.Contains(all, "mine") || strings.Contains(all, placeholder) {
				c.Errorf("HOLE: %s, %v: the origin got %s", e.name, header, all)
			}
		}
		c.internet().Forget()
		b.say(e, e.request("POST", "key.lab", "/bound/x", "Transfer-Encoding: chunked",
			"Trailer: Authorization")+"1\r\na\r\n0\r\nAuthorization: Bearer mine\r\nX-Api-Key: mine\r\n\r\n")
		for _, r := range c.internet().Requests() {
			if len(r.Trailer.Values("Authorization"))+len(r.Trailer.Values("X-Api-Key")) > 0 {
				c.Errorf("HOLE: %s: trailers are %v", e.name, r.Trailer)
			}
		}
	}
	// A placeholder is no key: wherever it is sent, it stays what it is.
	for _, e := range everyEntry("allowed.lab") {
		c.internet().Forget()
		b.get(e, "allowed.lab", "/bound/"+placeholder+"?k="+placeholder, "Authorization: Bearer "+placeholder,
			"X-Other: "+placeholder)
		seen := c.internet().Requests()
		if len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+placeholder ||
			betrays(fmt.Sprint(seen[0]), value) != "" {
			c.Errorf("HOLE or not tested: %s: another host got %v", e.name, seen)
		}
	}
	for name, one := range map[string][2]string{"basic": {"basic.lab", "COVE_ROWS_BASIC"},
		"header": {"header.lab", "COVE_ROWS_HEADER"}, "query": {"query.lab", "COVE_ROWS_QUERY"}} {
		v := c.secret(one[1])
		own := c.outward(allow(one[0]), name)
		want := map[string]string{"basic": "Basic " + base64.StdEncoding.EncodeToString([]byte("somebody:"+v)), "header": v,
			"query": "key=" + v}[name]
		for _, e := range bound(one[0]) {
			c.internet().Forget()
			own.get(e, one[0], "/bound/x?key=mine&KEY=mine&key[]=mine", "Authorization: Bearer mine", "X-Lab-Key: mine",
				"x_lab_key: mine")
			seen := c.internet().Requests()
			all := ""
			for _, r := range seen {
				all += fmt.Sprint(r.Target, " ", r.Header)
			}
			if len(seen) != 1 || strings.Count(all, want) != 1 || name == "basic" && len(seen[0].Header["Authorization"]) != 1 ||
				name == "header" && strings.Contains(fmt.Sprint(seen[0].Header), "mine") ||
				name == "query" && strings.Contains(seen[0].Target, "mine") {
				c.Errorf("HOLE or not tested: %s by %s: the origin got %s", name, e.name, all)
			}
		}
	}
}
