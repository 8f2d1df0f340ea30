package policy

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	table, err := ParseTable("t.yaml", []byte(`policies: [a.yaml, b.yaml]
tests:
  - request: https://x.lab/v1
    verdict: allow
    rule: a.yaml:2
  - request: POST https://x.lab/v1
    verdict: deny
  - lookup: x.lab
    verdict: allow
  - connect: x.lab:22
    verdict: deny
  - dial: x.lab:443 10.0.0.1
    verdict: deny
    rule: address
  - {request: "https://x.lab/v2", verdict: deny}
  - {request: "https://198.51.100.7/", verdict: allow}
  - {request: "https://through.lab/any", verdict: allow, rule: "a.yaml:8"}
  - {request: "GET https://x.lab/v1", verdict: ask}
  - {request: "GET https://x.lab/v1", verdict: allow, rule: "a.yaml:9"}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, Machine{}, "rules:\n- hosts: x.lab\n  methods: GET\n  paths: /v1/**\n- cidrs: 198.51.100.7\n  "+
		"ports: 443\n# on\n- hosts: through.lab\n  pass_through: true\n")
	want := map[int]string{8: "it is allow by a.yaml:2, expected ask", 9: "it is allow by a.yaml:2, expected by a.yaml:9"}
	for i, e := range table.Expectations {
		if _, differs := e.Judge(p); differs != want[i] {
			t.Errorf("%s %s: %q, want %q", e.ID, e.Request, differs, want[i])
		}
	}
	if strings.Join(table.Policies, " ") != "a.yaml b.yaml" || table.Expectations[2].ID != "t.yaml:8" ||
		table.Expectations[3].Request != "connect x.lab:22" {
		t.Errorf("got %+v", table)
	}
}

func TestTableRefusals(t *testing.T) {
	for text, says := range map[string]string{
		"":                           "t.yaml expects nothing",
		"policies: [a.yaml]\n":       "t.yaml:1: the table has no tests",
		"tests: []\n":                "has no tests",
		"tests: x\n":                 "t.yaml:1: tests must be a list",
		"test:\n- lookup: x\n":       "t.yaml:1: the table has no key \"test\"",
		"tests:\n- lookup: x.lab\n":  "t.yaml:2: the test expects no verdict",
		"tests:\n- verdict: allow\n": "t.yaml:2: a test has one of request",
		"tests:\n- {lookup: x.lab, connect: \"x.lab:1\", verdict: deny}\n": "a test has one of request",
		"tests:\n- {lookup: x..lab, verdict: deny}\n":                      "t.yaml:2: \"x..lab\" is not a host",
		"tests:\n- {lookup: x.lab, verdict: maybe}\n":                      "no action",
		"tests:\n- {request: \"GET x.lab/\", verdict: deny}\n":             "is not a URL",
		"tests:\n- {dial: \"x.lab:443\", verdict: deny}\n":                 "HOST:PORT ADDRESS",
		"tests:\n- {connect: \"x.lab:0443\", verdict: deny}\n":             "is not a port",
	} {
		if _, err := ParseTable("t.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte("tests:\n- {request: \"POST https://x.lab/a\", verdict: allow}\n- {dial: \"x.lab:443 10.0.0.1\", " +
		"verdict: deny}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ParseTable("t.yaml", data)
		if err != nil {
			return
		}
		for _, e := range table.Expectations {
			if v, differs := e.Judge(nil); (differs == "") != (e.Action == Deny && (e.Rule == "" || e.Rule == v.Rule)) {
				t.Errorf("%+v: %+v, %q", e, v, differs)
			}
		}
	})
}
