package credential

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

const whole = `# all there is
credentials:
  - name: tracker
    source: [command, pass, show, "a b"]
    variables: [TRACKER_TOKEN, TRACKER_KEY]
    shape: trk_{24}
    to:
      - hosts: [tracker.example.com, '*.tracker.example.com']
        ports: 443
        methods: [GET, POST]
        paths: /api/**
        form: header
        header: x-tracker-key
        template: "Key {}"
        strip: [session, x-user]
  - name: second
    source: file:/run/secrets/second
    to:
      - {hosts: second.example.com, form: basic, user: me}
`

func TestParse(t *testing.T) {
	all := parse(t, whole)
	if len(all) != 2 {
		t.Fatalf("%d credentials", len(all))
	}
	c := all[0]
	if got := fmt.Sprintf("%s %s %s %q", c.Name, c.Variables, c.Shape,
		c.Source.argv); got != `tracker [TRACKER_TOKEN TRACKER_KEY] trk_{24} ["pass" "show" "a b"]` {
		t.Errorf("%s", got)
	}
	b := c.Bindings[0]
	if b.ID != "test.yaml:8" || b.Form.header != "X-Tracker-Key" || b.Form.before != "Key " ||
		fmt.Sprint(b.Form.others) != "[session x-user]" || len(b.probes) != 2 {
		t.Errorf("%+v", b)
	}
	if all[1].Shape != defaultShape || all[1].Source.String() != "file:/run/secrets/second" ||
		!all[1].Bindings[0].Form.basic {
		t.Errorf("%+v", all[1])
	}
	for _, empty := range []string{"", "# nothing", "credentials: []", "credentials:"} {
		if all, err := Parse("test.yaml", []byte(empty)); err != nil || len(all) != 0 {
			t.Errorf("%q: %v, %v", empty, all, err)
		}
	}
}

// TestMistakes: each mistake is refused with its line.
func TestMistakes(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"    shape:",
			"    shap:"}: `test.yaml:6: there is no key "shap" here`,
		{"credentials:",
			"credential:"}: `test.yaml:2: there is no key "credential" here`,
		{"    shape: trk_{24}\n", "    name: again\n"}: "test.yaml:6: " +
			"this is set already in line 3",
		{"name: tracker", "name: Tracker"}: "test.yaml:3: " +
			"a credential has a name",
		{"name: tracker", "name: [tracker]"}: "test.yaml:3: " +
			"here belongs one value",
		{"name: tracker",
			"name: second"}: "test.yaml:16: there are two credentials of the name second",
		{"source: [command", "source: [run"}: "test.yaml:4: " +
			"a list is a command",
		{`[command, pass, show, "a b"]`, "nothing"}: "test.yaml:4: " +
			"this is no source",
		{`[command, pass, show, "a b"]`, "*anchor"}: "is not YAML",
		{`[command, pass, show, "a b"]`, "[]"}: "test.yaml:4: " +
			"there is no source",
		{"TRACKER_KEY]", "TRACKER-KEY]"}: "test.yaml:5: " +
			"this is no name of a variable",
		{"trk_{24}", "trk_{4}"}: "test.yaml:6: " +
			"a shape is one word",
		{"trk_{24}", "'trk {24}'"}: "test.yaml:6: " +
			"a shape is one word",
		{"        ports: 443\n", "        ports: 99999\n"}:      "test.yaml:9: ",
		{"        paths: /api/**\n", "        path: /api/**\n"}: "test.yaml:11: ",
		{"        paths: /api/**\n", "        paths: []\n"}:     "test.yaml:11: ",
		{"        paths: /api/**\n",
			"        pass_through: true\n"}: "test.yaml:11: a credential is bound to what policy allows",
		{"        paths: /api/**\n",
			"        action: deny\n"}: "test.yaml:11: a credential is bound to what policy allows",
		{"        form: header\n",
			"        form: cookie\n"}: "test.yaml:12: form is bearer, header, basic or query",
		{"        form: header\n",
			""}: "form is bearer, header, basic or query",
		{"        form: header\n", "        form: [header]\n"}: "form is bearer",
		{"        form: header\n",
			"        form: bearer\n"}: "does not belong to the form bearer",
		{"        form: header\n", "        form: header\n        form: x\n"}: "test.yaml:13: ",
		{"x-tracker-key", "'x tracker'"}: "is no header " +
			"for a credential",
		{"x-tracker-key", "Transfer-Encoding"}: "is no header " +
			"for a credential",
		{"x-tracker-key", "'a: b'"}:      "is no header for a credential",
		{`"Key {}"`, `"Key"`}:            "a template has {} once",
		{`"Key {}"`, `"Key {} {}"`}:      "a template has {} once",
		{`"Key {}"`, `"Key {}\r\nX: y"`}: "a template has {} once",
		{"hosts: [tracker.example.com, '*.tracker.example.com']", "hosts: []"}:       "test.yaml:8: ",
		{"hosts: [tracker.example.com, '*.tracker.example.com']", "hosts: tr_acker"}: "test.yaml:8: ",
		{"{hosts: second.example.com, form: basic, user: me}", "{form: basic}"}:      "test.yaml:19: ",
		{"{hosts: second.example.com, form: basic, user: me}",
			"{hosts: s.test, form: basic, user: 'a:b'}"}: "test.yaml:19: a user has no colon",
		{"{hosts: second.example.com, form: basic, user: me}",
			"{hosts: s.test, form: query}"}: "test.yaml:19: a parameter has",
		{", user: me}", "}"}: "test.yaml:19: the form basic needs a user",
		{"{hosts: second.example.com, form: basic, user: me}",
			"x"}: "test.yaml:19: an entry of to is a mapping",
		{"source: file:/run/secrets/second\n    to:\n      - {hosts: second.example.com",
			"source: gh\n    to:\n      - {hosts: '*.example.com'"}: "cannot be bound to *",
		{"user: me}\n", "user: me}\n---\ncredentials: []\n"}: "more than one YAML document",
	} {
		from, to := change[0], change[1]
		if !strings.Contains(whole, from) {
			t.Fatalf("%q is not in the document", from)
		}
		_, err := Parse("test.yaml", []byte(strings.Replace(whole, from, to, 1)))
		if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(fmt.Sprint(err), want) ||
			!strings.Contains(fmt.Sprint(err), "test.yaml") {
			t.Errorf("%q to %q:\n got  %v\n want %s", from, to, err, want)
		}
	}
	if _, err := Parse("test.yaml", make([]byte, 1<<20+1)); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("a huge document: %v", err)
	}
}

// TestDocument: the documented example parses.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/credentials.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if all, err := Parse("docs/credentials.md", []byte(block)); !found || err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	presets, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range presets {
		if !strings.Contains(string(page), "`"+c.Name+"`") {
			t.Errorf("%s is not in the document", c.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add(bearerTo)
	f.Add(string(presets))
	f.Add("credentials: [{name: a, source: &x gh, to: [{hosts: *x, form: bearer}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse("test.yaml", []byte(text))
		if err != nil {
			if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), "test.yaml") {
				t.Errorf("an error without its place: %v", err)
			}
			return
		}
		for _, c := range all {
			if c.Name == "" || c.Source.kind == "" || checkShape(c.Shape) != nil {
				t.Errorf("an incomplete credential was accepted: %+v", c)
			}
			for _, b := range c.Bindings {
				if (b.Form.header == "") == (b.Form.parameter == "") {
					t.Errorf("a form without a place, or with two: %+v", b.Form)
				}
			}
		}
		if s, err := NewSet(NewValues(clock.Real()), all...); err == nil {
			for _, p := range s.Placeholders() {
				if len(p) < minRandom || !visible(p) {
					t.Errorf("a placeholder %q", p)
				}
			}
		}
	})
}

// FuzzStrip: in any query, Go finds no parameter of the name afterwards, and the others are unchanged.
func FuzzStrip(f *testing.F) {
	for _, q := range []string{"key=1", "a=1&key=2&b=3", "%6bey=1", "KEY=1&Key", "key[]=1", "a;key=1", "key", "=&&=",
		"a=%zz&key=1", "k%00ey=1"} {
		f.Add(q)
	}
	form, err := queryForm("key")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		h := &http.Request{Header: http.Header{}, URL: &url.URL{RawQuery: query}}
		form.strip(h)
		got, _ := url.ParseQuery(h.URL.RawQuery)
		for name := range got {
			if strings.EqualFold(name, "key") {
				t.Errorf("%q became %q, with %q", query, h.URL.RawQuery, name)
			}
		}
		before, err := url.ParseQuery(query)
		for name, values := range before {
			ordinary := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == "" && name != "key" &&
				!slices.ContainsFunc(carriers, func(c string) bool { return plain(c) == name })
			if err == nil && ordinary && !slices.Equal(got[name], values) {
				t.Errorf("%q lost %q: %q", query, name, h.URL.RawQuery)
			}
		}
	})
}
