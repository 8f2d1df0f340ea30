package devcontainer

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cove-sandbox/cove"
)

// withFeatures evaluates a file in a checkout with features, each by its metadata.
func withFeatures(text string, features map[string]string) (*Effective, Files, error) {
	checkout := fstest.MapFS{}
	for name, meta := range features {
		checkout[".devcontainer/"+name+"/"+featureName] = &fstest.MapFile{Data: []byte(meta)}
		checkout[".devcontainer/"+name+"/"+installName] = &fstest.MapFile{Data: []byte("install " + name)}
	}
	e, err := Evaluate(File{".devcontainer/devcontainer.json", []byte(text)}, users)
	if err == nil {
		err = e.Err()
	}
	if err != nil {
		return e, nil, err
	}
	files, err := AddFeatures(checkout, e, users)
	return e, files, err
}

func TestFeatureOrder(t *testing.T) {
	for _, c := range []struct {
		name, more string
		features   map[string]string
		want       string // of ids; or the error
	}{
		{"by name", "", map[string]string{"a": `{}`, "b": `{}`}, "./a ./b"},
		{"installsAfter", "", map[string]string{"a": `{"id": "a", "installsAfter": ["x.test/f/b:1", "x.test/f/none"]}`,
			"b": `{"id": "b"}`}, "./b ./a"},
		{"dependsOn", "", map[string]string{"a": `{"dependsOn": {"./c": {"o": true}}}`, "b": `{}`, "c": `{}`}, "./b ./c ./a"},
		{"override", `, "overrideFeatureInstallOrder": ["./b"]`, map[string]string{"a": `{}`, "b": `{}`}, "./b ./a"},
		{"dependsOn before override", `, "overrideFeatureInstallOrder": ["./a"]`,
			map[string]string{"a": `{"dependsOn": {"./b": {}}}`, "b": `{}`}, "./b ./a"},
		{"a circle", "", map[string]string{"a": `{"dependsOn": {"./b": {}}}`, "b": `{"dependsOn": {"./a": {}}}`},
			"wait for each other"},
		{"of itself", "", map[string]string{"a": `{"dependsOn": {"./a": {}}}`, "b": `{}`}, "wait for each other"},
		{"of a registry", "", map[string]string{"a": `{"dependsOn": {"x.test/f/b": {}}}`, "b": `{}`}, ""},
		{"of an address", "", map[string]string{"a": `{"dependsOn": {"https://x.test/b.tgz": {}}}`, "b": `{}`}, "HOST/PATH"},
		{"outside", "", map[string]string{"a": `{"dependsOn": {"./../../../b": {}}}`, "b": `{}`}, "leads out"},
		{"nothing there", "", map[string]string{"a": `{}`}, "there is no feature .devcontainer/b"},
	} {
		e, _, err := withFeatures(`{"image": "i", "features": {"./b": {}, "./a": {}}`+c.more+`}`, c.features)
		var ids []string
		for _, f := range e.Features {
			ids = append(ids, f.ID)
		}
		got := strings.Join(ids, " ")
		if err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want %s", c.name, got, err, c.want)
		}
	}
}

// TestFeature: the options of a feature, its environment and commands are taken, what would weaken a sandbox is not.
func TestFeature(t *testing.T) {
	const meta = `{"id": "tool", "version": "1.2", "options": {"version": {"type": "string", "default": "latest"},
		"9 with-docs": {"type": "boolean", "default": false}, "kind": {"enum": ["a", "b"], "default": "a"}},
		"containerEnv": {"PATH": "/opt/\\\"x:${PATH}"}, "privileged": true, "capAdd": ["SYS_PTRACE"], "entrypoint": "/e",
		"mounts": [{"source": "of-${devcontainerId}", "target": "/var/lib/tool", "type": "volume"},
		"type=bind,source=/,target=/h"],
		"postCreateCommand": "tool init", "customizations": {}}`
	text := `{"image": "debian:12", "postCreateCommand": "make", "onCreateCommand": "first",
		"features": {"./tool": {"9 with-docs": true, "other": "it's"}}}`
	e, files, err := withFeatures(text, map[string]string{"tool": meta})
	if err != nil {
		t.Fatal(err)
	}
	var left, commands []string
	for _, l := range e.LeftOut {
		left = append(left, l.Key)
	}
	for _, c := range e.Commands {
		commands = append(commands, c.Steps[0].Args[2])
	}
	want := []string{"features../tool.mounts /h", "features../tool.privileged", "features../tool.capAdd",
		"features../tool.entrypoint"}
	if !slices.Equal(left, want) || !slices.Equal(commands, []string{"first", "tool init", "make"}) {
		t.Errorf("left out %q, commands %q", left, commands)
	}
	if !slices.Equal(e.Volumes, []cove.Volume{{Target: "/var/lib/tool"}}) {
		t.Errorf("%+v", e.Volumes)
	}
	dockerfile, context := Instructions("debian:12", "node", e.Features, files)
	for _, part := range []string{"FROM debian:12\nENV ", `ENV PATH="/opt/\\\"x:${PATH}"`, "COPY 0/ /tmp/",
		"export KIND='a' ", "export VERSION='latest' ", "export _WITH_DOCS='true' ", `export OTHER='it'\\''s' `} {
		if !strings.Contains(string(dockerfile), part) {
			t.Errorf("there is no %s:\n%s", part, dockerfile)
		}
	}
	if string(context["0/"+installName]) != "install tool" || len(context) != 2 {
		t.Errorf("the context has %q", context)
	}
	for _, c := range []struct {
		features string
		code     cove.Code
	}{
		{`{"./tool": {"kind": "c"}}`, cove.InvalidArgument},
		{`{"./tool": {"kind": 5}}`, cove.InvalidArgument},
		{`{"./tool": {"": "x"}}`, cove.InvalidArgument},
		{`{"../../tool": {}}`, cove.InvalidArgument},
		{`{"x.test/features/go:1": {}}`, ""},
		{`{"go": {}}`, cove.Unsupported},
		{`{"user/features/go": {}}`, cove.Unsupported},
		{`{"x.test/../go": {}}`, cove.Unsupported},
		{`{"https://x.test/f.tgz": {}}`, cove.Unsupported},
		{`{"./none": {}}`, cove.NotFound},
	} {
		_, _, err := withFeatures(`{"image": "i", "features": `+c.features+`}`, map[string]string{"tool": meta})
		if cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", c.features, err)
		}
	}
	if _, _, err := withFeatures(`{"features": {"./tool": {}}}`, nil); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("without an image: %v", err)
	}
	for _, image := range []string{"a\\nRUN x", "--platform=x y", "$A"} {
		if _, err := Evaluate(File{"f", []byte(`{"image": "` + image + `"}`)}, users); cove.ErrorCode(err) !=
			cove.InvalidArgument {
			t.Errorf("image %q: %v", image, err)
		}
	}
}

// TestFetched: a feature of a registry is missing until it has been fetched, and so is one that another depends on.
func TestFetched(t *testing.T) {
	const text = `{"image": "i", "features": {"x.test/f/go:1": {"version": "1.25"}, "./tool": {}}}`
	has := map[string]Files{}
	c := users
	c.Fetched = func(ref string) (Files, bool) { f, is := has[ref]; return f, is }
	of := func(meta string) Files {
		return Files{featureName: []byte(meta), installName: []byte("go"), "lib/x": []byte("x")}
	}
	for _, step := range []struct{ missing, order string }{{"x.test/f/go:1", ""}, {"localhost:5000/f/base", ""},
		{"", "./tool localhost:5000/f/base x.test/f/go:1"}} {
		e, err := Evaluate(File{".devcontainer/devcontainer.json", []byte(text)}, c)
		if err != nil {
			t.Fatal(err)
		}
		files, err := AddFeatures(fstest.MapFS{
			".devcontainer/tool/" + featureName: {Data: []byte(`{"id": "tool"}`)},
			".devcontainer/tool/" + installName: {},
		}, e, c)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, f := range e.Features {
			order = append(order, f.ID)
		}
		if strings.Join(e.Missing, " ") != step.missing || strings.Join(order, " ") != step.order ||
			(e.Err() == nil) != (step.missing == "") {
			t.Fatalf("missing %q, in the order %q, %v; want %+v", e.Missing, order, e.Err(), step)
		}
		switch step.missing {
		case "x.test/f/go:1":
			has[step.missing] = of(`{"id": "go", "installsAfter": ["./tool"], "dependsOn": {"localhost:5000/f/base": {}}}`)
		case "localhost:5000/f/base":
			has[step.missing] = of(`{"id": "base", "installsAfter": ["x.test/f/tool"]}`)
		default:
			dockerfile, context := Instructions("i", "", e.Features, files)
			if string(context["2/lib/x"]) != "x" || !strings.Contains(string(dockerfile), "VERSION='1.25'") {
				t.Errorf("%s\n%q", dockerfile, context)
			}
		}
	}
}

// TestFormerNames: an address that features once had is refused with the one to write instead.
func TestFormerNames(t *testing.T) {
	for id, want := range map[string]string{
		"node": "HOST/devcontainers/features/node:1", "node@v2": "HOST/devcontainers/features/node:2",
		"github.com/ada/tools/go": "HOST/ada/tools/go:1", "ada/tools/go@v1.2.0": "HOST/ada/tools/go:1.2.0",
		"https://x.test/f.tgz": "a folder, as ./NAME", "a/b/c/d": "a folder, as ./NAME", "$(x)": "a folder, as ./NAME",
	} {
		e := evaluated(t, `{"image": "i", "features": {"`+id+`": {}}}`)
		if err := e.Err(); cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestLock: features of which a lock file says the digest are fetched by it, those that others depend on, too.
func TestLock(t *testing.T) {
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	c := users
	fetched := Files{featureName: []byte(`{"id": "go", "dependsOn": {"x.test:5000/f/base": {}}}`), installName: nil}
	c.Fetched = func(ref string) (Files, bool) { return fetched, ref == "x.test/f/go@"+one }
	read := func(feature, lock string) (*Effective, Files, error) {
		e, err := Evaluate(File{".devcontainer.json", []byte(`{"image": "i", "features": {"` + feature + `": {}}}`)}, c)
		if err != nil {
			t.Fatal(err)
		}
		files, err := AddFeatures(fstest.MapFS{".devcontainer-lock.json": {Data: []byte(lock)}}, e, c)
		return e, files, err
	}
	good := `{"features": {"x.test/f/go:1": {"version": "1.2.3", "resolved": "x.test/f/go@` + one + `",
		"integrity": "` + one + `"}, "x.test:5000/f/base": {"resolved": "x.test:5000/f/base@` + two + `"}}}`
	e, files, err := read("x.test/f/go:1", good)
	if err != nil || !slices.Equal(e.Missing, []string{"x.test:5000/f/base@" + two}) {
		t.Errorf("missing is %q, %v", e.Missing, err)
	}
	if string(files[".devcontainer-lock.json"]) != good {
		t.Error("the lock file does not belong to what is agreed to")
	}
	if e, _, err := read("x.test/f/other:1", good); err != nil || !slices.Equal(e.Missing, []string{"x.test/f/other:1"}) {
		t.Errorf("one that is not locked: %q, %v", e.Missing, err)
	}
	for _, bad := range []struct{ feature, resolved, integrity string }{
		{"x.test/f/go:1", "x.test/f/evil@" + one, ""}, {"x.test/f/go:1", "y.test/f/go@" + one, ""},
		{"x.test/f/go:1", "x.test/f/go:1", ""}, {"x.test/f/go:1", "x.test/f/go@sha256:1", ""}, {"x.test/f/go:1", "", ""},
		{"x.test/f/go:1", "x.test/f/go@" + one, two}, {"x.test/f/go@" + two, "x.test/f/go@" + one, ""},
		{"x.test/f/go:1", "x.test/f/go@" + one + "/../x", ""},
	} {
		_, _, err := read(bad.feature, `{"features": {"`+bad.feature+`": {"resolved": "`+bad.resolved+`", "integrity": "`+
			bad.integrity+`"}}}`)
		if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), ".devcontainer-lock.json") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, _, err := read("x.test/f/go:1", "{"); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("no JSON: %v", err)
	}
}
