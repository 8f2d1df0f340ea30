package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/packages"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// authorities returns a reader's results, as host:port.
func authorities(t *testing.T, r *Reader, tool string) []string {
	t.Helper()
	found, err := r.Endpoints(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range found {
		all = append(all, e.Host.Authority(e.Port))
		if e.From == "" {
			t.Errorf("%v: nothing says where from", e.Host)
		}
	}
	return all
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// installed skips the test of a tool that is not installed.
func installed(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("%s is not installed", tool)
	}
}

func TestGo(t *testing.T) {
	installed(t, "go")
	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"proxies": {"GOPROXY=https://modules.lab.test,http://user:secret@second.lab.test:8081/go|" +
			"direct\nGOSUMDB=sums.lab.test\n", []string{"modules.lab.test:443", "second.lab.test:8081", "sums.lab.test:443"}},
		"a database behind a URL": {
			"GOPROXY=https://modules.lab.test\nGOSUMDB=sums.lab.test+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8 " +
				"https://modules.lab.test/sumdb\n", []string{"modules.lab.test:443"}},
		"no database": {"GOPROXY=https://modules.lab.test,off\nGOSUMDB=off\n", []string{"modules.lab.test:443"}},
		"files": {"GOPROXY=file:///srv/modules,https://modules.lab.test\nGOSUMDB=off\n",
			[]string{"modules.lab.test:443"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOENV", write(t, filepath.Join(t.TempDir(), "env"), c.config))
			t.Setenv("GOPROXY", "")
			t.Setenv("GOSUMDB", "")
			t.Setenv("GONOSUMDB", "")
			expect(t, authorities(t, New(), "go"), c.want...)
		})
	}
}

func TestNPM(t *testing.T) {
	installed(t, "npm")
	dir := t.TempDir()
	t.Setenv("NPM_CONFIG_USERCONFIG", write(t, filepath.Join(dir, "npmrc"),
		"registry=https://registry.lab.test:4873/npm/\n@team:registry=https://team.lab.test/\n//registry.lab.test:4873/npm/:_authToken=secret\n"))
	t.Setenv("NPM_CONFIG_GLOBALCONFIG", write(t, filepath.Join(dir, "global"), ""))
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if _, set := os.LookupEnv(name); set {
			t.Setenv(name, "https://registry.lab.test:4873/npm/")
		}
	}
	expect(t, authorities(t, New(), "npm"), "team.lab.test:443", "registry.lab.test:4873")
	// As settings for npm itself, without credentials.
	if got, err := New().NPM(t.Context()); err != nil || len(got) != 2 ||
		got["registry"] != "https://registry.lab.test:4873/npm/" || got["@team:registry"] != "https://team.lab.test/" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPip(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	r := New()
	if _, _, _, err := r.pipProgram(t.Context()); err != nil {
		t.Skip("pip is not installed")
	}
	for _, name := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"} {
		if _, set := os.LookupEnv(name); set {
			t.Setenv(name, "/srv/wheels")
		}
	}
	t.Setenv("PIP_CONFIG_FILE", write(t, filepath.Join(t.TempDir(), "pip.conf"),
		"[global]\nindex-url = https://user:secret@index.lab.test/simple\nextra-index-url =\n  "+
			"https://second.lab.test/simple\n  http://third.lab.test:8080/simple\nfind-links = /srv/wheels\n"))
	got := authorities(t, r, "pip")
	slices.Sort(got)
	expect(t, got, "index.lab.test:443", "second.lab.test:443", "third.lab.test:8080")
}

// TestPipDefault: without configuration, pip's own source names the index and the host of files.
func TestPipDefault(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "_internal/models/index.py"),
		"class PackageIndex:\n    pass\n\n\nPyPI = PackageIndex(\"https://index.lab.test/\", "+
			"file_storage_domain=\"files.lab.test\")\nTestPyPI = PackageIndex(\n    \"https://other.lab.test/\", "+
			"file_storage_domain=\"other-files.lab.test\"\n)\n")
	for configured, want := range map[string][]string{
		"": {"index.lab.test:443", "files.lab.test:443"},
		"global.index-url='https://index.lab.test/simple'\n":  {"index.lab.test:443", "files.lab.test:443"},
		"global.index-url='https://mirror.lab.test/simple'\n": {"mirror.lab.test:443"},
	} {
		r := New()
		r.run = func(_ context.Context, name string, args ...string) (string, error) {
			switch line := name + " " + strings.Join(args, " "); {
			case name != "python3":
				return "", exec.ErrNotFound
			case line == "python3 -m pip config list":
				return configured, nil
			case line == "python3 -m pip --version":
				return "pip 23.0.1 from " + dir + " (python 3.11)\n", nil
			}
			return "", errors.New("not asked for")
		}
		expect(t, authorities(t, r, "pip"), want...)
	}
}

func TestApt(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "etc/apt/sources.list"),
		"# deb http://old.lab.test/debian stable main\ndeb http://mirror.lab.test/debian stable main\ndeb-src [arch=amd64 "+
			"signed-by=/k.gpg] https://user:secret@source.lab.test:8443/debian stable main # x\ncdrom:[x]/ stable\n")
	write(t, filepath.Join(root, "etc/apt/sources.list.d/a.list"),
		"deb file:///srv/packages ./\ndeb mirror+file:/etc/apt/mirrors/list stable main\ndeb "+
			"mirror://lists.lab.test/mirrors stable main\n")
	write(t, filepath.Join(root, "etc/apt/mirrors/list"),
		"https://first.lab.test/debian\tpriority:1\n# none\nhttps://second.lab.test/debian\n")
	write(t, filepath.Join(root, "etc/apt/sources.list.d/b.sources"),
		"Types: deb\n# http://commented.lab.test/\nURIs: http://stanza.lab.test/debian\n "+
			"http://more.lab.test/debian\nSuites: stable\n\nEnabled: no\nTypes: deb\nURIs: "+
			"http://disabled.lab.test/debian\n\nuris: https://last.lab.test\n")
	write(t, filepath.Join(root, "etc/apt/sources.list.d/c.list.disabled"), "deb http://unused.lab.test/ x y\n")
	r := New()
	r.root = root
	expect(t, authorities(t, r, "apt"), "mirror.lab.test:80", "source.lab.test:8443", "first.lab.test:443",
		"second.lab.test:443", "lists.lab.test:80", "stanza.lab.test:80", "more.lab.test:80", "last.lab.test:443")
}

// TestSums: the database has the key that GOSUMDB has, or that go's own source has for its name.
func TestSums(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "src/cmd/go/internal/modfetch/key.go"),
		"var known = map[string]string{\n\t\"sums.lab.test\": \"sums.lab.test+033de0ae+Ac4z/da0=\",\n}\n")
	for setting, want := range map[string]packages.Sums{
		"sums.lab.test": {Name: "sums.lab.test", Key: "sums.lab.test+033de0ae+Ac4z/da0=", URL: "https://sums.lab.test"},
		"sums.lab.test https://mirror.lab.test/sums/": {Name: "sums.lab.test", Key: "sums.lab.test+033de0ae+Ac4z/da0=",
			URL: "https://mirror.lab.test/sums"},
		"other.lab.test+00+x": {Name: "other.lab.test", Key: "other.lab.test+00+x", URL: "https://other.lab.test"},
		"other.lab.test":      {}, "off": {}, "": {},
	} {
		r := New()
		r.run = func(context.Context, string, ...string) (string, error) {
			return fmt.Sprintf(`{"GOSUMDB":%q,"GONOSUMDB":"corp.lab.test","GOROOT":%q}`, setting, root), nil
		}
		if want.Name != "" {
			want.Private = "corp.lab.test"
		}
		if got := r.Sums(t.Context()); got != want {
			t.Errorf("%q: %+v, want %+v", setting, got, want)
		}
	}
}

// TestGem: gem prints its sources, one a line.
func TestGem(t *testing.T) {
	installed(t, "gem")
	t.Setenv("GEMRC", write(t, filepath.Join(t.TempDir(), "gemrc"),
		":sources:\n- https://user:secret@gems.lab.test/\n- https://second.lab.test:8443/team\n"))
	expect(t, authorities(t, New(), "gem"), "gems.lab.test:443", "second.lab.test:8443")
}

// TestSuites: each suite of a source of packages has the keys that apt would believe, and those alone.
func TestSuites(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"etc/apt/trusted.gpg.d/a.gpg": "ring a", "etc/apt/trusted.gpg.d/b.asc": "ring b",
		"etc/apt/trusted.gpg.d/c.txt": "no ring",
		"k.gpg":                       "ring k",
		"etc/apt/sources.list": "deb http://one.lab.test/debian/ bookworm main contrib\n" +
			"deb [arch=i386,amd64 signed-by=/k.gpg] " +
			"https://user:secret@two.lab.test:8443/d stable main\ndeb-src http://source.lab.test/debian bookworm main\n" +
			"deb [signed-by=/missing.gpg] http://none.lab.test/debian bookworm main\ndeb http://flat.lab.test/debian ./\n" +
			"deb mirror+file:/etc/apt/mirrors stable main\ndeb cdrom:[x]/ stable main\n",
		"etc/apt/mirrors": "http://mirror.lab.test/debian\n",
		"etc/apt/sources.list.d/x.sources": "Types: deb deb-src\nURIs: http://three.lab.test/debian\n " +
			"http://four.lab.test/debian\nSuites: a a-updates\nComponents: main\nSigned-By:\n " +
			"-----BEGIN PGP PUBLIC KEY BLOCK-----\n" +
			" .\n mQ==\n -----END PGP PUBLIC KEY BLOCK-----\n\nTypes: deb\nEnabled: no\n" +
			"URIs: http://off.lab.test/debian\nSuites: a\n\n" +
			"Types: deb\nURIs: http://five.lab.test/debian\nSuites: b\nComponents: main\nSigned-By: " +
			"0123456789abcdef0123456789abcdef01234567!\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	r := New()
	r.root = root
	r.run = func(_ context.Context, name string, args ...string) (string, error) {
		if name != "apt-config" {
			t.Errorf("%s is run", name)
		}
		return "parts='/etc/apt/sources.list.d/'\narchitecture='riscv64'\n", nil
	}
	const armored = "ring -----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"
	var got []string
	for _, s := range r.Suites(t.Context()) {
		line := fmt.Sprintf("%s %s %v%v%v", s.Base, s.Name, s.Components, s.Architectures, s.Fingerprints)
		for _, k := range s.Keyrings {
			line += " " + strings.TrimPrefix(string(k), "ring ")
		}
		got = append(got, line)
	}
	inline := strings.TrimPrefix(armored, "ring ")
	expect(t, got, "http://one.lab.test/debian bookworm [main contrib][riscv64][] a b",
		"https://two.lab.test:8443/d stable [main][i386 amd64][] k",
		"http://mirror.lab.test/debian stable [main][riscv64][] a b",
		"http://three.lab.test/debian a [main][riscv64][] "+inline,
		"http://three.lab.test/debian a-updates [main][riscv64][] "+inline,
		"http://four.lab.test/debian a [main][riscv64][] "+inline,
		"http://four.lab.test/debian a-updates [main][riscv64][] "+inline,
		"http://five.lab.test/debian b [main][riscv64][0123456789ABCDEF0123456789ABCDEF01234567] a b")
	r.root = t.TempDir()
	if got := r.Suites(t.Context()); len(got) != 0 {
		t.Errorf("a machine without apt has %v", got)
	}
}

func TestCargo(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "config.toml"),
		"[source.crates-io]\nreplace-with = \"mirror\"\n[ source.mirror ]\nregistry = "+
			"\"sparse+https://crates.lab.test/index/\" # x\n[registries]\nteam.index = "+
			"'https://team.lab.test/index'\n[registries.other]\nindex = \"https://other.lab.test/\"\n[net]\nregistry = "+
			"\"https://no.lab.test\"\n")
	write(t, filepath.Join(home, "registry/index/index.lab.test-0123456789abcdef/config.json"),
		`{"dl":"https://download.lab.test/crates","api":"https://api.lab.test"}`)
	write(t, filepath.Join(home, "registry/index/broken/config.json"), `{"dl":"https://no.lab.test"}`)
	r := New()
	r.getenv = func(name string) string { return map[string]string{"CARGO_HOME": home}[name] }
	expect(t, authorities(t, r, "cargo"), "crates.lab.test:443", "team.lab.test:443", "other.lab.test:443",
		"index.lab.test:443", "download.lab.test:443")
}

func TestWhatIsNotThere(t *testing.T) {
	r := New()
	r.root = t.TempDir()
	r.getenv = func(string) string { return r.root }
	r.run = func(context.Context, string, ...string) (string, error) { return "", exec.ErrNotFound }
	for _, tool := range []string{"npm", "pip", "go", "apt", "cargo", "gem"} {
		_, err := r.Endpoints(t.Context(), tool)
		if cove.ErrorCode(err) != cove.NotFound || cove.ErrorHint(err) == "" {
			t.Errorf("%s: %v", tool, err)
		}
	}
	r.run = func(context.Context, string, ...string) (string, error) { return "not JSON", nil }
	if _, err := r.Endpoints(t.Context(), "npm"); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("npm that says nonsense: %v", err)
	}
	if _, err := r.Endpoints(t.Context(), "brew"); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("an unknown tool: %v", err)
	}
}

// TestReadOnce: a tool is asked once, and a caller's changes to the result do not affect the next caller.
func TestReadOnce(t *testing.T) {
	r := New()
	asked := 0
	r.run = func(context.Context, string, ...string) (string, error) {
		asked++
		return "https://modules.lab.test\noff\n", nil
	}
	first, err := r.Endpoints(t.Context(), "go")
	if err != nil {
		t.Fatal(err)
	}
	first[0] = policy.Endpoint{}
	expect(t, authorities(t, r, "go"), "modules.lab.test:443")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// TestEveryPresetIsKnown: the reader supports every tool that presets name.
func TestEveryPresetIsKnown(t *testing.T) {
	presets, err := policy.Presets()
	if err != nil {
		t.Fatal(err)
	}
	r := New()
	r.root = t.TempDir()
	r.getenv = func(string) string { return r.root }
	r.run = func(context.Context, string, ...string) (string, error) { return "", exec.ErrNotFound }
	for _, p := range presets {
		if _, err := r.Endpoints(t.Context(), p.Registry); p.Registry != "" && cove.ErrorCode(err) != cove.NotFound {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("deb [a=b] http://x.lab.test/debian s c\n", "URIs: http://x.lab.test\n y\n\nEnabled: no\n",
		"[source.x]\nregistry=\"https://x.lab.test\"\n")
	f.Fuzz(func(t *testing.T, list, stanzas, toml string) {
		var all []origin
		for _, uri := range cargoURLs(toml) {
			all = append(all, origin{uri, "x"})
		}
		for _, s := range slices.Concat(aptLines(list), aptStanzas(stanzas)) {
			for _, uri := range s.uris {
				all = append(all, origin{uri, "x"})
				for _, of := range suitesAt(packages.Suite{}, uri, s.suites) {
					if of.Name == "" || !strings.HasPrefix(of.Base, "http") || strings.HasSuffix(of.Base, "/") {
						t.Errorf("%+v", of)
					}
				}
			}
		}
		for _, e := range endpoints(all) {
			if e.Host.IsZero() || e.Port == 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}
