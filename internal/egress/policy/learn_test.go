package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPropose(t *testing.T) {
	var tried []Attempt
	for _, line := range []string{
		"dns x.lab", "connect x.lab:443", "GET x.lab/v1/items/17", "GET x.lab/v1/items/18", "HEAD x.lab/v1/items/18",
		"POST x.lab/v1/items",
		"GET y.lab/v1/items/3", "HEAD y.lab/v1/items/4", "POST y.lab/v1/items", // like x.lab
		"dns unused.lab", "denied dns unknown.lab", "denied dns unknown.lab", "denied dns git.lab",
		"denied dns metadata.google.internal",
		"through raw.lab:22", "through raw.lab:443", "GET raw.lab:80/", "denied POST raw.lab:80/",
		"connect git.lab:22",
		"GET npm.lab:8443/@types%2Fnode",
		"GET sha.lab/blob/0123456789abcdef0123456789abcdef", "GET sha.lab/blob/0123456789abcdef0123456789abcde0",
		"GET 198.51.100.7:80/",
		"dial db.lab:5432 10.0.0.9", "connect db.lab:5432", "dial db.lab:5432 10.0.0.9",
		"connect localhost:80", "connect 127.0.0.1:80", "connect 169.254.169.254:80", "dial x.lab:443 169.254.169.254",
		"connect host.cove.internal:5432", "connect host.cove.internal:6379", "dial host.cove.internal:5432 127.0.0.1",
	} {
		rest, denied := strings.CutPrefix(line, "denied ")
		rest, through := strings.CutPrefix(rest, "through ")
		if through {
			rest = "connect " + rest
		}
		tried = append(tried, Attempt{Request: ask(t, rest), Times: 1, Denied: denied, PassThrough: through})
	}
	for i := range 20 {
		tried = append(tried, Attempt{Times: 2, Request: ask(t, fmt.Sprintf("GET many.lab/assets/name-%c/x", 'a'+i))})
	}
	got, err := Propose(tried).YAML()
	if err != nil {
		t.Fatal(err)
	}
	want := `mode: limited
rules:
  # tried once: GET /
  - cidrs: [198.51.100.7/32]
    ports: [80]
    methods: [GET]
    paths: [/]
  # tried once: db.lab:5432
  - hosts: [db.lab]
    ports: [5432]
  # tried once: git.lab:22
  - hosts: [git.lab]
    ports: [22]
  # tried 2 times: host.cove.internal:5432, host.cove.internal:6379
  - hosts: [host.cove.internal]
    ports: [5432, 6379]
  # tried 40 times: GET /assets/name-a/x, GET /assets/name-b/x, GET /assets/name-c/x, GET /assets/name-d/x and 16 more
  - hosts: [many.lab]
    ports: [443]
    methods: [GET]
    paths: [/assets/**]
  # tried once: GET /@types%2Fnode
  - hosts: [npm.lab]
    ports: [8443]
    methods: [GET]
    paths: [/@types%2Fnode, /@types/node]
  # tried 2 times: raw.lab:22, raw.lab:443
  - hosts: [raw.lab]
    ports: [22, 443]
    pass_through: true
  # tried 2 times, denied once: GET /, POST /
  - hosts: [raw.lab]
    ports: [80]
    methods: [GET, POST]
    paths: [/]
  # tried 2 times: GET /blob/0123456789abcdef0123456789abcdef, GET /blob/0123456789abcdef0123456789abcde0
  - hosts: [sha.lab]
    ports: [443]
    methods: [GET]
    paths: [/blob/*]
  # looked up 2 times and denied; what for was not seen
  - hosts: [unknown.lab]
  # tried 5 times: GET x.lab/v1/items/17, GET x.lab/v1/items/18, HEAD x.lab/v1/items/18, GET y.lab/v1/items/3 and 1 more
  - hosts: [x.lab, y.lab]
    ports: [443]
    methods: [GET, HEAD]
    paths: [/v1/items/*]
  # tried 2 times: POST x.lab/v1/items, POST y.lab/v1/items
  - hosts: [x.lab, y.lab]
    ports: [443]
    methods: [POST]
    paths: [/v1/items]
  - cidrs: [10.0.0.9/32]
    ports: [5432]
    note: db.lab is there
`
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
	if empty, err := Propose(nil).YAML(); err != nil || string(empty) != "mode: limited\nrules: []\n" {
		t.Errorf("of nothing: %s (%v)", empty, err)
	}
}

// TestProposalsAllowWhatWasTried: proposals allow the attempts and no other host.
func TestProposalsAllowWhatWasTried(t *testing.T) {
	world := worldRequests(t)
	open := compile(t, worldMachine, "mode: open\nrules:\n- cidrs: [10.0.0.0/8, 198.51.100.0/24]\n  ports: 1-65535\n- "+
		"hosts: host.cove.internal\n  ports: [22, 80, 443, 5432]\n")
	rapid.Check(t, func(t *rapid.T) {
		var tried []Attempt
		hosts := map[Host]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(world)-1), 0, 30).Draw(t, "tried") {
			tried = append(tried, Attempt{Request: world[i], Times: 1, Denied: rapid.Bool().Draw(t, "denied"),
				PassThrough: world[i].Layer == LayerConnect && rapid.Bool().Draw(t, "through")})
			hosts[world[i].Host] = true
		}
		d := Propose(tried)
		text, err := d.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("learned.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		p := compiled(t, again)
		findings, err := Check(worldMachine, again)
		// Private addresses may be opened twice: directly, and for a name.
		dials := slices.ContainsFunc(tried, func(a Attempt) bool { return a.Layer == LayerDial })
		if err != nil || !dials && slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Warning }) {
			t.Fatalf("%+v (%v)\n%s", findings, err, text)
		}
		for _, a := range tried {
			r := a.Request
			if v := open.Decide(r); v.Action == Allow && r.Layer != LayerDNS && p.Decide(r).Action != Allow {
				t.Fatalf("%+v: %+v\n%s", r, p.Decide(r), text)
			}
		}
		for _, r := range world {
			if !hosts[r.Host] && r.Host.name != "" && p.Decide(r).Action != Deny {
				t.Fatalf("%+v: %+v\n%s", r, p.Decide(r), text)
			}
		}
	})
}

// TestYAMLIsReadBack: written YAML parses to the same document.
func TestYAMLIsReadBack(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		d := worldDocument(t, "a", "allow", "ask", "deny")
		for i := range d.Rules {
			d.Rules[i].Note = rapid.SampledFrom([]string{"", "12", "true", "a: b # c", "é \"q\" 'p' ~", "- x",
				"2001-01-01"}).Draw(t, "note")
		}
		text, err := d.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("a", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again.Mode != d.Mode || again.Replace != d.Replace || len(again.Rules) != len(d.Rules) ||
			!slices.EqualFunc(again.Rules, d.Rules, func(a, b Rule) bool {
				return a.Note == b.Note && a.describe() == b.describe()
			}) {
			t.Fatalf("%+v\n%s\n%+v", d, text, again)
		}
		a, b := compiled(t, d), compiled(t, again)
		for _, r := range requests {
			if x, y := a.Decide(r), b.Decide(r); x.Action != y.Action || x.PassThrough != y.PassThrough {
				t.Fatalf("%+v: %+v, read back %+v\n%s", r, x, y, text)
			}
		}
	})
}
