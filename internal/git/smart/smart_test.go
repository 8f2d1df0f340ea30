package smart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/pktline"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

const (
	zero = "0000000000000000000000000000000000000000"
	a    = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	b    = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	c    = "cccccccccccccccccccccccccccccccccccccccc"
)

func TestRecognise(t *testing.T) {
	for target, want := range map[string]Request{
		"GET /g/r.git/info/refs?service=git-upload-pack":                          {Advertise, Fetch, "/g/r.git"},
		"GET /g/r/info/refs?service=git-receive-pack":                             {Advertise, Push, "/g/r"},
		"POST /g/r.git/git-upload-pack":                                           {UploadPack, Fetch, "/g/r.git"},
		"POST /g/r.git/git-receive-pack":                                          {ReceivePack, Push, "/g/r.git"},
		"POST /g/r.git/info/lfs/objects/batch":                                    {Kind: Batch, Repo: "/g/r.git"},
		"PUT /g/r.git/info/lfs/objects/00/1":                                      {Kind: LargeFile, Repo: "/g/r.git"},
		"GET /g/r.git/info/refs":                                                  {Kind: Files, Repo: "/g/r.git"},
		"GET /g/r.git/HEAD":                                                       {Kind: Files, Repo: "/g/r.git"},
		"GET /g/r.git/objects/info/alternates":                                    {Kind: Files, Repo: "/g/r.git"},
		"GET /g/r.git/anything":                                                   {Kind: Files, Repo: "/g/r.git"},
		"GET /g/r/objects/pack/pack-1.pack":                                       {Kind: Files, Repo: "/g/r"},
		"GET /g/r/config":                                                         {Kind: Files, Repo: "/g/r"},
		"GET /g/r.git/objects/git-receive-pack":                                   {Kind: Odd, Repo: "/g/r.git/objects"},
		"GET /g/r.git/info/refs?service=git-upload-archive":                       {Kind: Odd, Repo: "/g/r.git"},
		"GET /g/r.git/info/refs?service=git-upload-pack&service=git-receive-pack": {Kind: Odd, Repo: "/g/r.git"},
		"GET /g/r.git/info/refs?service=git%2Dreceive%2Dpack":                     {Kind: Odd, Repo: "/g/r.git"},
		"GET /g/r.git/info/refs?":                                                 {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/r.git/info/refs?service=git-upload-pack":                         {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/r.git/git-receive-pack?x":                                        {Kind: Odd, Repo: "/g/r.git"},
		"PUT /g/r.git/git-receive-pack":                                           {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/r.git/git%2Dreceive%2Dpack":                                      {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/r.git%2Fgit-receive-pack":                                        {Kind: Odd, Repo: "/g/r.git"},
		"POST /g%2Fr.git/git-receive-pack":                                        {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/r.git/Git-Receive-Pack":                                          {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/r.git/git-upload-archive":                                        {Kind: Odd, Repo: "/g/r.git"},
		"POST /g/b%C3%BC.git/git-upload-pack":                                     {UploadPack, Fetch, "/g/b%C3%BC.git"},
		"GET /g/r":                                                                {},
		"GET /g/r/pulls":                                                          {},
		"GET /config":                                                             {},
		"GET /":                                                                   {},
	} {
		method, rest, _ := strings.Cut(target, " ")
		path, query, asked := strings.Cut(rest, "?")
		if got := Recognise(method, path, query, asked); got != want {
			t.Errorf("%s: %+v", target, got)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for header, want := range map[string]Version{"version=2": 2, "version=1": 1, "version=0": 0, "": 0,
		"version=2:version=1": 0, "version=3": 0, " version=2": 0, "VERSION=2": 0} {
		if got := ParseVersion([]string{header}); got != want {
			t.Errorf("%q: %d", header, got)
		}
	}
	if ParseVersion([]string{"version=2", "version=2"}) != 0 || ParseVersion(nil) != 0 {
		t.Error("said twice, or not at all")
	}
}

// lines encodes pkt-lines: "~" is a flush, "|" a delimiter.
func lines(all ...string) string {
	var b bytes.Buffer
	w := pktline.NewWriter(&b)
	for _, l := range all {
		switch l {
		case "~":
			w.Flush()
		case "|":
			w.Delim()
		default:
			w.Data([]byte(l))
		}
	}
	return b.String()
}

// view sees main, own, tags and nothing else; shown receives the listed ids.
func view(shown *[]string) View {
	return View{
		Sees: func(ref, head string) bool {
			return ref == "refs/heads/own" || ref == "refs/heads/main" || strings.HasPrefix(ref, "refs/tags/") ||
				ref == "HEAD" && head == "refs/heads/main"
		},
		Shown: func(_, id string) { *shown = append(*shown, id) },
	}
}

// TestAdvertisement: a server's list keeps visible refs, and capabilities that can be judged (PROBES G3).
func TestAdvertisement(t *testing.T) {
	const caps = "\x00multi_ack thin-pack side-band-64k symref=HEAD:refs/heads/main allow-any-sha1-in-want " +
		"packfile-uris object-format=sha1 agent=git/2"
	const left = "\x00multi_ack thin-pack side-band-64k symref=HEAD:refs/heads/main object-format=sha1 agent=git/2"
	for name, x := range map[string]struct {
		service  Service
		in, want []string
		shown    []string
	}{
		"version 0": {Fetch,
			[]string{"# service=git-upload-pack\n", "~", a + " HEAD" + caps + "\n", b + " refs/heads/hidden\n",
				a + " refs/heads/main\n", b + " refs/pull/1/head\n", b + " refs/tags/v1\n", c + " refs/tags/v1^{}\n", "~"},
			[]string{"# service=git-upload-pack\n", "~", a + " HEAD" + left + "\n", a + " refs/heads/main\n",
				b + " refs/tags/v1\n", c + " refs/tags/v1^{}\n", "~"}, []string{a, a, b, c}},
		"version 1": {Fetch,
			[]string{"# service=git-upload-pack\n", "~", "version 1\n", a + " refs/heads/own" + caps + "\n", "~"},
			[]string{"# service=git-upload-pack\n", "~", "version 1\n",
				a + " refs/heads/own\x00multi_ack thin-pack side-band-64k symref=HEAD:refs/heads/main object-format=sha1 " +
					"agent=git/2\n", "~"}, []string{a}},
		"HEAD is hidden": {Fetch,
			[]string{"# service=git-upload-pack\n", "~", a + " HEAD\x00symref=HEAD:refs/heads/hidden agent=x\n",
				a + " refs/heads/hidden\n", b + " refs/heads/own\n", "~"},
			[]string{"# service=git-upload-pack\n", "~", b + " refs/heads/own\x00agent=x\n", "~"}, []string{b}},
		"nothing is seen": {Fetch,
			[]string{"# service=git-upload-pack\n", "~", a + " refs/heads/hidden\x00agent=x\n", "~"},
			[]string{"# service=git-upload-pack\n", "~", zero + " capabilities^{}\x00agent=x\n", "~"}, nil},
		"empty": {Push,
			[]string{"# service=git-receive-pack\n", "~", zero + " capabilities^{}\x00report-status push-cert=x agent=x\n", "~"},
			[]string{"# service=git-receive-pack\n", "~", zero + " capabilities^{}\x00report-status agent=x no-thin\n", "~"},
			nil},
		"pushes": {Push,
			[]string{"# service=git-receive-pack\n", "~", a +
				" .have\x00report-status delete-refs push-options push-cert=nonce atomic\n", a + " refs/heads/hidden\n",
				b + " refs/heads/own\n", "~"},
			[]string{"# service=git-receive-pack\n", "~", b + " refs/heads/own\x00report-status delete-refs atomic no-thin\n",
				"~"}, []string{b}},
		"version 2": {Fetch,
			[]string{"version 2\n", "agent=git/2\n", "ls-refs=unborn more\n", "fetch=shallow packfile-uris filter\n",
				"server-option\n", "object-format=sha1\n", "object-info\n", "bundle-uri\n", "~"},
			[]string{"version 2\n", "agent=git/2\n", "ls-refs=unborn\n", "fetch=shallow filter\n", "object-format=sha1\n", "~"},
			nil},
		"version 2, after the service": {Fetch,
			[]string{"# service=git-upload-pack\n", "~", "version 2\n", "fetch\n", "~"},
			[]string{"# service=git-upload-pack\n", "~", "version 2\n", "fetch\n", "~"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var shown []string
			out, err := io.ReadAll(Advertisement(iotest.HalfReader(strings.NewReader(lines(x.in...))), x.service, view(&shown)))
			if err != nil || string(out) != lines(x.want...) || !slices.Equal(shown, x.shown) {
				t.Errorf("%v, shown %q\n%q", err, shown, out)
			}
		})
	}
	for name, in := range map[string]string{
		"nothing":         "",
		"another service": lines("# service=git-receive-pack\n", "~", "~"),
		"no service":      lines(a+" refs/heads/main\n", "~"),
		"broken off":      lines("# service=git-upload-pack\n", "~", a+" refs/heads/own\x00agent=x\n"),
		"no capabilities": lines("# service=git-upload-pack\n", "~", a+" refs/heads/own\n", "~"),
		"no object id":    lines("# service=git-upload-pack\n", "~", "main refs/heads/own\x00agent=x\n", "~"),
		"goes on": lines("# service=git-upload-pack\n", "~", a+" refs/heads/own\x00agent=x\n", "~",
			a+" refs/heads/hidden\n"),
		"another version": lines("# service=git-upload-pack\n", "~", "version 3\n", "~"),
		"HTML":            "<html>",
		"two kinds of ids": lines("# service=git-upload-pack\n", "~", a+" refs/heads/own\x00agent=x\n",
			a+a[:24]+" refs/heads/main\n", "~"),
		"version 2, a list": lines("version 2\n", "|", "~"),
	} {
		var shown []string
		if out, err := io.ReadAll(Advertisement(strings.NewReader(in), Fetch, view(&shown))); err == nil ||
			strings.Contains(string(out), "hidden") {
			t.Errorf("%s: %q", name, out)
		}
	}
}

func TestRefs(t *testing.T) {
	var shown []string
	in := lines(a+" HEAD symref-target:refs/heads/main\n", a+" refs/heads/main\n", b+" refs/heads/hidden\n",
		b+" refs/tags/v1 peeled:"+c+"\n", b+" refs/heads/own symref-target:refs/heads/hidden\n", "~")
	want := lines(a+" HEAD symref-target:refs/heads/main\n", a+" refs/heads/main\n", b+" refs/tags/v1 peeled:"+c+"\n", "~")
	if out, err := io.ReadAll(Refs(strings.NewReader(in), view(&shown))); err != nil || string(out) != want ||
		!slices.Equal(shown, []string{a, a, b, c}) {
		t.Errorf("%v %q\n%q", err, shown, out)
	}
	head := ""
	v := view(&shown)
	v.Found = func(h string) { head = h }
	if out, err := io.ReadAll(Refs(strings.NewReader(lines("unborn HEAD symref-target:refs/heads/main\n", "~")),
		v)); err != nil || len(out) < 20 || head != "refs/heads/main" {
		t.Errorf("unborn: %v %q", err, out)
	}
	for _, bad := range []string{"", lines(a + " refs/heads/own\n"), lines("x refs/heads/own\n", "~"),
		lines(a+" refs/heads/own other:x\n", "~"), lines(a+"\n", "~"), lines("~", a+" refs/heads/own\n"), lines("|", "~")} {
		if _, err := io.ReadAll(Refs(strings.NewReader(bad), view(&shown))); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestParseAsked(t *testing.T) {
	for name, x := range map[string]struct {
		version Version
		in      string
		want    Asked
		code    cove.Code
	}{
		"wants": {0, lines("want "+a+" multi_ack side-band-64k agent=x session-id=y\n", "want "+b+"\n", "~",
			"have "+c+"\n", "done\n"), Asked{Wants: []string{a, b}}, ""},
		"shallow": {0, lines("want "+a+" shallow\n", "shallow "+b+"\n", "deepen 1\n", "deepen-not refs/heads/x\n",
			"filter blob:none\n", "~", "~", "done\n"), Asked{Wants: []string{a}, Names: []string{"refs/heads/x"}}, ""},
		"nothing":      {0, "", Asked{}, ""},
		"a want after": {0, lines("want "+a+" x\n", "~", "want "+b+"\n"), Asked{}, cove.InvalidArgument},
		"a want among haves": {0, lines("want "+a+" thin-pack\n", "~", "have "+c+"\n", "want "+b+"\n", "done\n"), Asked{},
			cove.InvalidArgument},
		"any capability": {0, lines("want "+a+" packfile-uris\n", "~", "done\n"), Asked{}, cove.InvalidArgument},
		"a name":         {0, lines("want refs/heads/x thin-pack\n", "~", "done\n"), Asked{}, cove.InvalidArgument},
		"version 2 as 0": {0, lines("command=fetch\n", "|", "want "+a+"\n", "~"), Asked{}, cove.InvalidArgument},
		"sparse filter": {0, lines("want "+a+" filter\n", "filter sparse:oid=main:x\n", "~", "done\n"), Asked{},
			cove.Forbidden},
		"combined filter": {0, lines("want "+a+" filter\n", "filter combine:blob:none+tree:0\n", "~", "done\n"),
			Asked{Wants: []string{a}}, ""},
		"combined, sparse": {0, lines("want "+a+" filter\n", "filter combine:blob:none+sparse:oid=x\n", "~", "done\n"),
			Asked{}, cove.Forbidden},
		"broken off": {0, lines("want " + a + " thin-pack\n")[:20], Asked{}, cove.InvalidArgument},

		"fetch": {2, lines("command=fetch", "agent=x", "object-format=sha1", "|", "thin-pack", "no-progress",
			"include-tag", "ofs-delta", "deepen 1\n", "want "+a+"\n", "have "+c+"\n", "done\n", "~"),
			Asked{Wants: []string{a}}, ""},
		"want-ref": {2, lines("command=fetch", "|", "want-ref refs/heads/x\n", "done", "~"),
			Asked{Names: []string{"refs/heads/x"}}, ""},
		"ls-refs": {2, lines("command=ls-refs\n", "|", "peel\n", "symrefs\n", "unborn\n",
			"ref-prefix refs/heads/\n", "~"), Asked{Refs: true}, ""},
		"ls-refs, all": {2, lines("command=ls-refs\n", "~"), Asked{Refs: true}, ""},
		"object-info":  {2, lines("command=object-info", "|", "size", "oid "+a, "~"), Asked{}, cove.InvalidArgument},
		"bundle-uri":   {2, lines("command=bundle-uri", "~"), Asked{}, cove.InvalidArgument},
		"two commands": {2, lines("command=ls-refs", "command=fetch", "|", "want "+a, "~"), Asked{},
			cove.InvalidArgument},
		"one after another": {2, lines("command=ls-refs", "~", "command=fetch", "|", "want "+a, "~"), Asked{},
			cove.InvalidArgument},
		"no command":     {2, lines("agent=x", "~"), Asked{}, cove.InvalidArgument},
		"only a flush":   {2, lines("~"), Asked{}, cove.InvalidArgument},
		"server options": {2, lines("command=fetch", "server-option=x", "|", "want "+a, "~"), Asked{}, cove.InvalidArgument},
		"packfile-uris": {2, lines("command=fetch", "|", "packfile-uris https", "want "+a, "~"), Asked{},
			cove.InvalidArgument},
		"two sections":    {2, lines("command=fetch", "|", "want "+a, "|", "want "+b, "~"), Asked{}, cove.InvalidArgument},
		"no end":          {2, lines("command=fetch", "|", "want "+a), Asked{}, cove.InvalidArgument},
		"a sparse filter": {2, lines("command=fetch", "|", "want "+a, "filter sparse:oid="+b, "~"), Asked{}, cove.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAsked(strings.NewReader(x.in), x.version)
			if x.code != "" {
				if cove.ErrorCode(err) != x.code {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(x.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	many := strings.Repeat(lines("have "+a+"\n"), maxAskedLines)
	if _, err := ParseAsked(strings.NewReader(lines("~")+many), 0); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("many lines: %v", err)
	}
}

func TestParseCommands(t *testing.T) {
	in := strings.NewReader(lines(a+" "+b+" refs/heads/own\x00 report-status-v2 side-band-64k atomic push-options "+
		"object-format=sha1 agent=git/2 session-id=x", zero+" "+c+" refs/heads/x y", "~", "option\n", "~") + "PACK")
	got, err := ParseCommands(in)
	if err != nil || len(got.Updates) != 2 || got.Updates[0] != (policy.Update{Ref: "refs/heads/own", Old: a, New: b}) ||
		got.Updates[1].Ref != "refs/heads/x y" ||
		!got.Atomic || !slices.Equal(got.Options, []string{"option"}) || !got.HasPack() || !got.CanReport() || got.Probe {
		t.Errorf("%+v, %v", got, err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "PACK" {
		t.Errorf("the pack is %q", rest)
	}
	for name, x := range map[string]struct {
		in    string
		check func(Commands) bool
	}{
		"a probe": {"0000", func(c Commands) bool { return c.Probe && len(c.Updates) == 0 }},
		"a certificate": {lines("push-cert\x00report-status\n", "certificate version 0.1\n", "~"), func(c Commands) bool {
			return c.Certificate
		}},
		"shallow": {lines("shallow "+a, a+" "+b+" refs/heads/own\x00report-status", "~"), func(c Commands) bool {
			return slices.Equal(c.Shallow, []string{a}) && len(c.Updates) == 1 && c.CanReport()
		}},
		"deletion": {lines(a+" "+zero+" refs/heads/own\x00report-status", "~"), func(c Commands) bool {
			return !c.HasPack() && !c.Probe
		}},
		"a NUL later": {lines(a+" "+b+" refs/heads/own\x00report-status", a+" "+b+" refs/heads/x\x00y", "~"),
			func(c Commands) bool {
				return policy.CheckName(c.Updates[1].Ref) != ""
			}},
		"no words": {lines(a+" "+b+" refs/heads/own", "~"), func(c Commands) bool { return !c.CanReport() }},
	} {
		if got, err := ParseCommands(strings.NewReader(x.in)); err != nil || !x.check(got) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, in := range map[string]string{
		"nothing":             "",
		"no flush":            lines(a + " " + b + " refs/heads/own\x00report-status"),
		"no ref":              lines(a+" "+b+"\x00report-status", "~"),
		"any capability":      lines(a+" "+b+" refs/heads/own\x00proc-receive", "~"),
		"a section":           lines(a+" "+b+" refs/heads/own\x00report-status", "|"),
		"options without end": lines(a+" "+b+" refs/heads/own\x00push-options", "~", "x"),
	} {
		if got, err := ParseCommands(strings.NewReader(in)); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := ParseCommands(strings.NewReader(strings.Repeat(lines(a+" "+b+" refs/heads/own"),
		maxPushLines+1))); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("many: %v", err)
	}
}

// TestRefuse: a refusal is a report with a reason for each ref, in the client's form, and cannot be escaped from.
func TestRefuse(t *testing.T) {
	v := policy.Verdict{
		Updates: []policy.Ruling{{Update: policy.Update{Ref: "refs/heads/x"}, Reason: "no\nok refs/heads/x"},
			{Update: policy.Update{Ref: "refs/heads/\x1b[2J\ny"}, Reason: "neither"}},
	}
	report := lines("unpack ok\n", "ng refs/heads/x no?ok refs/heads/x\n", "ng refs/heads/?[2J?y neither\n", "~")
	if got := (&Commands{report: true}).Refuse(v); string(got) != report {
		t.Errorf("%q", got)
	}
	var progress bytes.Buffer
	got, err := io.ReadAll(pktline.NewDemux(pktline.NewReader(
		bytes.NewReader((&Commands{report: true, bands: true}).Refuse(v, "hello\x07")), 1<<20, 100), func(p []byte) {
		progress.Write(p)
	}))
	if err != nil || string(got) != report || progress.String() != "hello?\n" {
		t.Errorf("%v %q %q", err, got, progress.String())
	}
}

// TestReport: reported updates are among the requested ones.
func TestReport(t *testing.T) {
	u := []policy.Update{{Ref: "refs/heads/x", Old: a, New: b}, {Ref: "refs/heads/y", Old: a, New: b}}
	c := &Commands{Push: policy.Push{Updates: u}, report: true}
	for in, want := range map[string]int{
		lines("unpack ok\n", "ok refs/heads/x\n", "ok refs/heads/y\n", "~"):             2,
		lines("unpack ok\n", "ok refs/heads/x\n", "ng refs/heads/y no\n", "~"):          1,
		lines("unpack ok\n", "ok refs/heads/other\n", "~"):                              0,
		lines("unpack ok\n", "ok refs/heads/x\n", "option refname refs/heads/z\n", "~"): 1,
		"": 0,
	} {
		if made, err := c.Report(strings.NewReader(in)); err != nil || len(made) != want {
			t.Errorf("%q: %+v, %v", in, made, err)
		}
	}
	if made, _ := c.Report(strings.NewReader("<html>")); len(made) > 0 {
		t.Errorf("%+v", made)
	}
}

func TestParseFetched(t *testing.T) {
	pack, shallow, err := ParseFetched(strings.NewReader(lines("shallow-info", "shallow "+a, "|", "packfile",
		"\x02progress", "\x01PACK", "\x01more", "~")))
	if err != nil || !slices.Equal(shallow, []string{a}) {
		t.Fatalf("%q, %v", shallow, err)
	}
	if data, err := io.ReadAll(pack); err != nil || string(data) != "PACKmore" {
		t.Errorf("%q, %v", data, err)
	}
	for _, in := range []string{"", lines("ERR not our ref"), lines("~"), lines("shallow-info", "unshallow "+a),
		lines("acknowledgments", "NAK", "~")} {
		if _, _, err := ParseFetched(strings.NewReader(in)); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
	pack, _, _ = ParseFetched(strings.NewReader(lines("packfile", "\x01PACK")))
	if _, err := io.ReadAll(pack); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("broken off: %v", err)
	}
}

func TestWithoutTags(t *testing.T) {
	for _, x := range []struct {
		version  Version
		in, want string
	}{
		{2, lines("command=fetch", "|", "include-tag\n", "want "+a, "include-tag", "done", "~"),
			lines("command=fetch", "|", "want "+a, "done", "~")},
		{0, lines("want "+a+" thin-pack include-tag agent=x\n", "want "+b+"\n", "~", "done\n"),
			lines("want "+a+" thin-pack agent=x\n", "want "+b+"\n", "~", "done\n")},
		{0, "", ""},
	} {
		if got, err := WithoutTags([]byte(x.in), x.version); err != nil || string(got) != x.want {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestParseFeatures(t *testing.T) {
	for in, want := range map[string]string{
		lines("version 2\n", "agent=x\n", "fetch=shallow filter\n",
			"~"): "[shallow filter] true false",
		lines("version 2\n", "fetch=shallow\n", "object-format=sha256\n", "~"):                        "[shallow] true true",
		lines("# service=git-upload-pack\n", "~", "version 2\n", "fetch\n", "~"):                      "[] true false",
		lines("# service=git-upload-pack\n", "~", a+" refs/heads/m\x00x\n", b+" refs/heads/x\n", "~"): "[] false false",
		lines("# service=git-upload-pack\n", "~", "version 1\n", a+" refs/heads/main\x00x\n", "~"):    "[] false false",
	} {
		f, err := ParseFeatures(strings.NewReader(in))
		if got := fmt.Sprint(f.Fetch, f.Two, f.SHA256); err != nil || got != want {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
	if _, err := ParseFeatures(strings.NewReader(lines("version 2\n"))); err == nil {
		t.Error("broken off")
	}
}

func TestParseBatch(t *testing.T) {
	for in, want := range map[string]string{`{"operation":"download","objects":[]}`: "download",
		`{"objects":[{"operation":"x"}],"operation":"upload"}`: "upload", `{}`: "",
		`{"operation":"download","operation":"upload"}`: "!", `{"Operation":"upload","operation":"download"}`: "!",
		`{"OPERATION":"upload"}`: "!", `[]`: "!", `{"operation":"download"}{}`: "!", `{"operation":1}`: "!", ``: "!",
		`{"operation":"download"`: "!"} {
		got, err := ParseBatch([]byte(in))
		if want == "!" && err == nil || want != "!" && (err != nil || got != want) {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}

// FuzzStreams: for any input, no hidden ref passes, no panic occurs, and a request is read within its bounds.
func FuzzStreams(f *testing.F) {
	f.Add([]byte(lines("# service=git-upload-pack\n", "~", a+" refs/heads/own\x00agent=x\n",
		a+" refs/heads/hidden\n", "~")))
	f.Add([]byte(lines("version 2\n", "fetch=x\n", "~")))
	f.Add([]byte(lines(a+" HEAD symref-target:refs/heads/main\n", b+" refs/heads/hidden\n", "~")))
	f.Add([]byte(lines("command=fetch", "|", "want "+a, "filter blob:none", "~")))
	f.Add([]byte(lines(a+" "+b+" refs/heads/own\x00report-status side-band-64k push-options", "~", "x", "~") + "PACK"))
	f.Add([]byte(lines("shallow-info", "shallow "+a, "|", "packfile", "\x01PACK", "~")))
	f.Fuzz(func(t *testing.T, in []byte) {
		var shown []string
		for _, r := range []io.Reader{Advertisement(bytes.NewReader(in), Fetch, view(&shown)),
			Advertisement(bytes.NewReader(in), Push, view(&shown)), Refs(bytes.NewReader(in), view(&shown))} {
			out, _ := io.ReadAll(r)
			p := pktline.NewReader(bytes.NewReader(out), 1<<30, 1<<20)
			for {
				line, err := p.Next()
				if err != nil {
					break
				}
				if name := strings.Fields(line.Text()); len(name) > 1 && isID(name[0]) &&
					strings.HasPrefix(name[1], "refs/heads/hidden") {
					t.Fatalf("%q", line.Data)
				}
			}
		}
		for _, v := range []Version{0, 2} {
			if got, err := ParseAsked(bytes.NewReader(in), v); err == nil {
				for _, id := range got.Wants {
					if !isID(id) {
						t.Fatalf("%q is wanted", id)
					}
				}
			}
		}
		if c, err := ParseCommands(bytes.NewReader(in)); err == nil {
			p := &policy.Policy{Push: []policy.Refs{"refs/heads/own"}, Update: policy.Allow}
			c.Refuse(p.Admit(c.Push), string(in))
			c.Report(bytes.NewReader(in))
		}
		if pack, _, err := ParseFetched(bytes.NewReader(in)); err == nil {
			io.Copy(io.Discard, pack)
		}
		ParseBatch(in)
	})
}

// TestRefusalPackets: a packet ERR is read wherever a list or an answer may begin or go on, and not beyond its end.
func TestRefusalPackets(t *testing.T) {
	const service = "# service=git-upload-pack\n"
	for name, x := range map[string]struct {
		in        []string
		refs      bool
		says      string
		malformed bool
	}{
		"first":           {in: []string{"ERR no\n"}, says: "no"},
		"after service":   {in: []string{service, "~", "ERR no"}, says: "no"},
		"in a list":       {in: []string{service, "~", a + " HEAD\x00thin-pack", "ERR no"}, says: "no"},
		"capabilities":    {in: []string{service, "~", "version 2", "ERR no"}, says: "no"},
		"refs":            {in: []string{"ERR a\tb\n\x07c"}, refs: true, says: "a b ?c"},
		"beyond the end":  {in: []string{a + " refs/heads/main", "~", "ERR no"}, refs: true, malformed: true},
		"another word":    {in: []string{"ERROR no"}, refs: true, malformed: true},
		"nothing":         {in: []string{"ERR \n"}, refs: true, says: ""},
		"not in UTF-8":    {in: []string{"ERR \xff\xfe\u202ex"}, refs: true, says: "???x"},
		"what follows it": {in: []string{"ERR no", a + " refs/heads/main", "~"}, refs: true, says: "no"},
	} {
		var shown []string
		var list *List
		if list = Advertisement(strings.NewReader(lines(x.in...)), Fetch, view(&shown)); x.refs {
			list = Refs(strings.NewReader(lines(x.in...)), view(&shown))
		}
		out, err := io.ReadAll(list)
		if (err != nil) != x.malformed || list.Refused() != x.says {
			t.Errorf("%s: %q, %v", name, list.Refused(), err)
		}
		if end := lines("ERR " + x.says + "\n"); !x.malformed && !strings.HasSuffix(string(out), end) {
			t.Errorf("%s: %q", name, out)
		}
	}
	for in, want := range map[string]string{"": "", "00": "00", lines("ERR x", "y"): lines("ERR x\n"),
		lines("packfile\n") + "rest": lines("packfile\n") + "rest"} {
		out, err := io.ReadAll(iotest.OneByteReader(NewResult(strings.NewReader(in), nil)))
		if err != nil || string(out) != want {
			t.Errorf("%q: %q, %v", in, out, err)
		}
	}
}
