//go:build linux

package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"
)

// need skips a test whose program is not where sandboxes look for it.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// static serves files by their path.
func static(files map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, text)
	})
}

// repository is one with a commit, bare, and who serves it as /repo.git.
func (l *lab) repository(t *testing.T) (bare string, backend http.Handler, git func(args ...string) string) {
	t.Helper()
	root := filepath.Join(l.dir, "git")
	bare = filepath.Join(root, "repo.git")
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("/usr/bin/git", args...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + l.dir, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q", "--bare", "-b", "main", bare)
	git("-C", bare, "config", "http.receivepack", "true")
	git("init", "-q", "-b", "main", filepath.Join(root, "work"))
	git("-C", filepath.Join(root, "work"), "-c", "user.name=x", "-c", "user.email=x@lab.test", "commit", "-q",
		"--allow-empty", "-m", "first")
	git("-C", filepath.Join(root, "work"), "push", "-q", bare, "main")
	return bare, &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(git("--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root, "REMOTE_USER=someone"},
	}, git
}

// TestGit: git clones, fetches and pushes over HTTPS, with more than it sends in one piece.
func TestGit(t *testing.T) {
	need(t, "/usr/bin/git")
	l := newLab(t)
	bare, backend, git := l.repository(t)
	l.Site("git.lab.test", backend)
	got := l.inside(t, `set -e; cd /tmp; export GIT_TERMINAL_PROMPT=0
git clone -q https://git.lab.test/repo.git a; git clone -q https://git.lab.test/repo.git b
git config --global user.name x; git config --global user.email x@lab.test
cd a; head -c 3000000 /dev/urandom > large; git add large; git commit -q -m second; git push -q origin main 2>&1
cd ../b; git fetch -q; git log --format=%s origin/main; git merge -q origin/main; cmp large ../a/large && echo same
git clone -q https://bad.lab.test/repo.git c 2>&1 || echo "denied $?"`, "--allow", "git.lab.test")
	if !strings.HasPrefix(got.stdout, "second\nfirst\nsame\n") || !strings.Contains(got.stdout, "denied 128") ||
		!strings.Contains(got.stdout, "remote: blocked by Cove's gateway: bad.lab.test") ||
		!strings.Contains(got.stdout, "403") {
		t.Errorf("%+v", got)
	}
	if log := git("-C", bare, "log", "--format=%s", "main"); log != "second\nfirst\n" {
		t.Errorf("pushed: %q", log)
	}
}

// TestRequests: Python's requests keeps a session, streams up and down, and is told what it must not.
func TestRequests(t *testing.T) {
	need(t, "/usr/lib/python3/dist-packages/requests")
	l := newLab(t)
	l.Page("/zipped", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, strings.Repeat("zipped ", 1000))
		z.Close()
	})
	l.Page("/jump", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, map[string]string{"out": "https://bad.lab.test/x", "in": "/y"}[r.URL.RawQuery],
			http.StatusTemporaryRedirect)
	})
	got := l.inside(t, `/usr/bin/python3 - <<'END'
import requests
s = requests.Session()
for i in range(3): print(s.get("https://good.lab.test/%d" % i, timeout=30).text, end="")
print(s.post("https://good.lab.test/up", data=(b"x" * 1000 for _ in range(50)), timeout=30).text, end="")
print(len(s.get("https://good.lab.test/zipped", timeout=30).text))
print(s.post("https://good.lab.test/jump?in", data="body", timeout=30).text, end="")
r = s.get("http://bad.lab.test/x", timeout=30); print(r.status_code, r.json()["host"])
r = s.get("https://good.lab.test/jump?out", timeout=30); print(r.status_code, r.json()["reason"])
s.trust_env = False; s.verify = "/etc/ssl/certs/ca-certificates.crt"
print(s.get("https://good.lab.test/transparent", timeout=30).text, end="")
END`, "--allow", "good.lab.test")
	want := `GET good.lab.test/0 over https
GET good.lab.test/1 over https
GET good.lab.test/2 over https
POST good.lab.test/up over https
7000
POST good.lab.test/y over https
403 bad.lab.test
403 no rule allows bad.lab.test:443
GET good.lab.test/transparent over https
`
	if got.stdout != want {
		t.Errorf("%+v, want %s", got, want)
	}
	for _, r := range l.Requests() {
		if r.Target == "/up" && len(r.Body) != 50000 || r.Target == "/y" && r.Body != "body" {
			t.Errorf("%s arrived with %d bytes", r, len(r.Body))
		}
	}
}

// tinyTarball is a package of npm.
func tinyTarball() []byte {
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	tarball := tar.NewWriter(z)
	for _, f := range [][2]string{{"package/package.json", `{"name":"tiny","version":"1.0.0"}`},
		{"package/index.js", `module.exports = "tiny from npm"`}} {
		tarball.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))})
		fmt.Fprint(tarball, f[1])
	}
	tarball.Close()
	z.Close()
	return archive.Bytes()
}

// tinyWheel is a package of PyPI.
func tinyWheel(t *testing.T) []byte {
	t.Helper()
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for _, f := range [][2]string{
		{"tiny.py", `says = "tiny from pip"`},
		{"tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"},
		{"tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"tiny-1.0.dist-info/RECORD",
			"tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, f[1])
	}
	z.Close()
	return wheel.Bytes()
}

// TestNpm installs a package with npm, which is a node program that goes by the proxy, and runs it.
func TestNpm(t *testing.T) {
	need(t, "/usr/bin/npm", "/usr/bin/node")
	l := newLab(t)
	archive := tinyTarball()
	sum := sha512.Sum512(archive)
	l.Site("npm.lab.test", static(map[string]string{
		"/tiny": `{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0","dist":{"tarball":"https://npm.lab.test/tiny/-/tiny-1.0.0.tgz","integrity":"sha512-` +
			base64.StdEncoding.EncodeToString(sum[:]) + `"}}}}`,
		"/tiny/-/tiny-1.0.0.tgz": string(archive),
	}))
	got := l.inside(t,
		`cd /tmp; mkdir p; cd p; npm install --registry https://npm.lab.test --cache /tmp/cache --no-audit --no-fund --no-update-notifier --loglevel=error tiny && node -p 'require("tiny")'`,
		"--allow", "npm.lab.test")
	if !strings.HasSuffix(got.stdout, "tiny from npm\n") {
		t.Errorf("%+v, arrived: %q", got, l.seen())
	}
}

// TestPip installs a package with pip, and runs it.
func TestPip(t *testing.T) {
	need(t, "/usr/bin/pip3")
	l := newLab(t)
	wheel := tinyWheel(t)
	l.Site("pypi.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/tiny/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<!DOCTYPE html><a href="/files/tiny-1.0-py3-none-any.whl#sha256=%x">tiny-1.0-py3-none-any.whl</a>`,
				sha256.Sum256(wheel))
		case "/files/tiny-1.0-py3-none-any.whl":
			w.Write(wheel)
		default:
			http.NotFound(w, r)
		}
	}))
	got := l.inside(t,
		`cd /tmp; /usr/bin/pip3 install -q --no-cache-dir --disable-pip-version-check --index-url https://pypi.lab.test/simple/ --target /tmp/site tiny &&
cd /tmp/site && /usr/bin/python3 -c 'import tiny; print(tiny.says)'`, "--allow", "pypi.lab.test")
	if !strings.HasSuffix(got.stdout, "tiny from pip\n") {
		t.Errorf("%+v, arrived: %q", got, l.seen())
	}
}

// TestPackageCache: npm and pip in one sandbox after another, each with nothing of its own. The second gets the files
// from the gateway, and a poisoned one goes no further than to the sandbox that asked.
func TestPackageCache(t *testing.T) {
	need(t, "/usr/bin/npm", "/usr/bin/node", "/usr/bin/pip3")
	l := newLab(t)
	archive, wheel := tinyTarball(), tinyWheel(t)
	sum := sha512.Sum512(archive)
	version := `{"name":"tiny","version":"1.0.0","dist":{"tarball":"https://npm.lab.test/tiny/-/tiny-1.0.0.tgz",` +
		`"integrity":"sha512-` + base64.StdEncoding.EncodeToString(sum[:]) + `"}}`
	const tarball, file = "/tiny/-/tiny-1.0.0.tgz", "/files/tiny-1.0-py3-none-any.whl"
	var poisoned atomic.Bool
	l.Site("npm.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tarball && poisoned.Load() {
			fmt.Fprint(w, "poison")
			return
		}
		static(map[string]string{
			"/tiny":       `{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":` + version + `}}`,
			"/tiny/1.0.0": version, tarball: string(archive)}).ServeHTTP(w, r)
	}))
	l.Site("pypi.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/tiny/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<a href="%s#sha256=%x">tiny</a>`, file, sha256.Sum256(wheel))
		case file:
			w.Write(wheel)
		default:
			http.NotFound(w, r)
		}
	}))
	for _, f := range [][2]string{{".npmrc", "registry=https://npm.lab.test/\n"},
		{".config/pip/pip.conf", "[global]\nindex-url = https://pypi.lab.test/simple\n"}} {
		l.file(t, f[0], f[1])
	}
	const npm = `cd /tmp; mkdir p; cd p; npm install --registry https://npm.lab.test --cache /tmp/cache --no-audit ` +
		`--no-fund --no-update-notifier --fetch-retries=0 --loglevel=error tiny && node -p 'require("tiny")'`
	const pip = `cd /tmp; /usr/bin/pip3 install -q --no-cache-dir --disable-pip-version-check --index-url ` +
		`https://pypi.lab.test/simple --target /tmp/site tiny && cd /tmp/site && ` +
		`/usr/bin/python3 -c 'import tiny; print(tiny.says)'`
	asked := func(path string) (n int) {
		for _, r := range l.Requests() {
			if r.Target == path {
				n++
			}
		}
		return n
	}
	install := func(script, says string, flags ...string) {
		t.Helper()
		if got := l.inside(t, script, flags...); !strings.HasSuffix(got.stdout, says+"\n") {
			t.Errorf("%+v, arrived: %q", got, l.seen())
		}
	}
	poisoned.Store(true)
	if got := l.inside(t, npm, "--preset", "npm"); got.code == 0 || asked(tarball) == 0 {
		t.Errorf("a poisoned package is installed: %+v", got)
	}
	poisoned.Store(false)
	before := asked(tarball)
	for range 2 {
		install(npm, "tiny from npm", "--preset", "npm")
		install(pip, "tiny from pip", "--preset", "pypi")
	}
	if asked(tarball) != before+1 || asked(file) != 1 {
		t.Errorf("arrived: %q", l.seen())
	}
	log := l.cove(t, "network", "log", "--limit", "1000", "--json")
	if n := strings.Count(log.stdout, `"stage": "packages"`); n != 2 {
		t.Errorf("%d lines of the cache in %+v", n, log)
	}
	if got := l.inside(t, npm); got.code == 0 {
		t.Errorf("the cache answers what no policy allows: %+v", got)
	}
	l.file(t, "alone.yaml", "package_cache: deny\npresets: [npm]\n")
	install(npm, "tiny from npm", "--policy", filepath.Join(l.dir, "alone.yaml"))
	if asked(tarball) != before+2 {
		t.Errorf("a sandbox that shares nothing was answered from the cache: %q", l.seen())
	}
}

// tinyDeb is a package of Debian.
func (l *lab) tinyDeb(t *testing.T) []byte {
	t.Helper()
	l.file(t, "deb/DEBIAN/control",
		"Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: Lab <lab@lab.test>\nDescription: tiny\n")
	l.file(t, "deb/usr/share/tiny/says", "tiny from apt\n")
	built := filepath.Join(l.dir, "tiny.deb")
	if out, err := exec.Command("/usr/bin/dpkg-deb", "--root-owner-group", "-b", filepath.Join(l.dir, "deb"), built).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deb, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	return deb
}

// stanza is that of a package in an index.
func stanza(deb []byte, filename string) string {
	return fmt.Sprintf("Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: Lab <lab@lab.test>\nDescription: "+
		"tiny\nFilename: %s\nSize: %d\nSHA256: %x\n", filename, len(deb), sha256.Sum256(deb))
}

// aptScript installs tiny from a source, as who is not root.
func aptScript(source string) string {
	return `mkdir -p /tmp/apt/{etc/apt.conf.d,etc/preferences.d,etc/trusted.gpg.d,state/lists/partial,cache/archives/partial,log,dpkg/updates,dpkg/info,root}
cd /tmp/apt; touch dpkg/status
echo '` + source + `' > etc/sources.list
cat > conf <<'END'
Dir "/tmp/apt"; Dir::Etc "etc"; Dir::State "state"; Dir::State::status "/tmp/apt/dpkg/status"; Dir::Cache "cache"; Dir::Log "log";
Dir::Bin::methods "/usr/lib/apt/methods"; Dir::Bin::dpkg "/usr/bin/dpkg"; Debug::NoLocking "1"; APT::Sandbox::User "";
DPkg::Options { "--force-not-root"; "--force-bad-path"; "--admindir=/tmp/apt/dpkg"; "--instdir=/tmp/apt/root"; "--log=/tmp/apt/log/dpkg"; };
END
export APT_CONFIG=/tmp/apt/conf
apt-get update 2>&1 && apt-get install -y tiny 2>&1; cat root/usr/share/tiny/says`
}

// TestApt: apt-get updates from a repository and installs a package from it, as who is not root.
func TestApt(t *testing.T) {
	need(t, "/usr/bin/apt-get", "/usr/bin/dpkg-deb")
	l := newLab(t)
	deb := l.tinyDeb(t)
	index := stanza(deb, "tiny.deb")
	l.Site("apt.lab.test", static(map[string]string{
		"/Packages": index, "/tiny.deb": string(deb),
		"/Release": fmt.Sprintf("Suite: lab\nSHA256:\n %x %d Packages\n", sha256.Sum256([]byte(index)), len(index)),
	}))
	got := l.inside(t, aptScript("deb [trusted=yes] https://apt.lab.test/ /"), "--allow", "apt.lab.test")
	if !strings.HasSuffix(got.stdout, "tiny from apt\n") {
		t.Errorf("%+v, arrived: %q", got, l.seen())
	}
}

// TestAptCache: apt in one sandbox after another, over plain http from a repository that gpg has signed. The second
// downloads the list of indexes alone, and a poisoned package, or one of a list that another key has signed, goes no
// further than to the sandbox that asked.
func TestAptCache(t *testing.T) {
	need(t, "/usr/bin/apt-get", "/usr/bin/apt-config", "/usr/bin/dpkg-deb", "/usr/bin/gpg", "/usr/bin/xz")
	l := newLab(t)
	deb := l.tinyDeb(t)
	run := func(stdin, script string) string {
		t.Helper()
		cmd := exec.Command("/bin/bash", "-ec", script)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + l.dir, "GNUPGHOME=" + filepath.Join(l.dir, "gnupg")}
		cmd.Stdin = strings.NewReader(stdin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, &stderr)
		}
		return string(out)
	}
	run("", `mkdir -m 700 $GNUPGHOME
for who in lab other; do gpg -q --batch --passphrase '' --quick-generate-key $who rsa3072 sign; done`)
	t.Cleanup(func() { run("", "gpgconf --kill all") })
	ring := run("", "gpg --armor --export lab")
	l.file(t, "lab.asc", ring)
	const pool, in = "/debian/pool/main/t/tiny_1.0_all.deb", "/debian/dists/stable/"
	// publish returns the files of the repository as of a time, signed by who.
	publish := func(who string, date time.Time, deb []byte) map[string]string {
		index := stanza(deb, strings.TrimPrefix(pool, "/debian/"))
		packed := run(index, "xz")
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(packed)))
		form := "Mon, 02 Jan 2006 15:04:05 UTC"
		list := fmt.Sprintf("Origin: Lab\nSuite: stable\nCodename: lab\nDate: %s\nValid-Until: %s\nAcquire-By-Hash: yes\n"+
			"Architectures: amd64 arm64\nComponents: main\nSHA256:\n", date.UTC().Format(form),
			date.UTC().AddDate(0, 0, 7).Format(form))
		files := map[string]string{pool: string(deb)}
		for _, a := range []string{"amd64", "arm64"} {
			list += fmt.Sprintf(" %x %d main/binary-%s/Packages\n %s %d main/binary-%s/Packages.xz\n",
				sha256.Sum256([]byte(index)), len(index), a, sum, len(packed), a)
			files[in+"main/binary-"+a+"/by-hash/SHA256/"+sum] = packed
		}
		files[in+"InRelease"] = run(list, "gpg -q --batch --clearsign --digest-algo SHA512 -u "+who)
		return files
	}
	now := time.Now().Add(-time.Hour)
	good, old := publish("lab", now, deb), publish("lab", now.AddDate(0, 0, -30), deb)
	poison := append([]byte{}, deb...)
	poison[len(poison)-1] ^= 1
	forged := publish("other", now.Add(time.Minute), poison)
	var served atomic.Pointer[map[string]string]
	l.Site("apt.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		static(*served.Load()).ServeHTTP(w, r)
	}))
	asked := func(part string) (n int) {
		for _, r := range l.Requests() {
			if strings.Contains(r.Target, part) {
				n++
			}
		}
		return n
	}
	const source = "http://apt.lab.test/debian stable main"
	l.file(t, "apt/sources.list", "deb [signed-by="+filepath.Join(l.dir, "lab.asc")+"] "+source+"\n")
	l.env = []string{"APT_CONFIG=" + l.file(t, "apt/conf", `Dir::Etc "`+filepath.Join(l.dir, "apt")+`";`)}
	trusting := aptScript("deb [trusted=yes] " + source) // a sandbox that believes all
	verifying := "cat > /tmp/lab.asc <<'END'\n" + ring + "END\n" + aptScript("deb [signed-by=/tmp/lab.asc] "+source)
	stored := func() int {
		files, err := os.ReadDir(filepath.Join(l.dir, "home/packages/files"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return len(files)
	}
	for name, files := range map[string]map[string]string{"signed by another": forged, "expired": old} {
		served.Store(&files)
		if got := l.inside(t, trusting, "--preset", "debian"); asked(in+"InRelease") == 0 || stored() != 0 {
			t.Errorf("%s: %d files are kept: %+v, arrived: %q", name, stored(), got, l.seen())
		}
	}
	poisoned := maps.Clone(good)
	poisoned[pool] = string(poison)
	served.Store(&poisoned)
	if got := l.inside(t, verifying, "--preset", "debian"); got.code == 0 || stored() != 1 { // the index
		t.Errorf("a poisoned package is installed, or kept: %d, %+v", stored(), got)
	}
	served.Store(&good)
	before, lists := asked(pool), asked("InRelease")
	for range 2 {
		if got := l.inside(t, verifying, "--preset", "debian"); !strings.HasSuffix(got.stdout, "tiny from apt\n") {
			t.Errorf("%+v, arrived: %q", got, l.seen())
		}
	}
	if asked(pool) != before+1 || asked("InRelease") != lists+2 || stored() != 2 {
		t.Errorf("%d files are kept; arrived: %q", stored(), l.seen())
	}
	log := l.cove(t, "network", "log", "--limit", "1000", "--json")
	if n := strings.Count(log.stdout, `"stage": "packages"`); n != 3 { // the index twice
		t.Errorf("%d lines of the cache in %+v", n, log)
	}
	served.Store(&forged) // a sandbox that verifies is safe, and one that does not gets what it asked for
	if got := l.inside(t, verifying, "--preset", "debian"); got.code == 0 {
		t.Errorf("%+v", got)
	}
}

// TestGemCache: gem in one sandbox after another. The second gets the gem from the gateway, and a poisoned one goes no
// further than to the sandbox that asked.
func TestGemCache(t *testing.T) {
	need(t, "/usr/bin/gem", "/usr/bin/ruby")
	l := newLab(t)
	l.file(t, "gem/tiny.gemspec", `Gem::Specification.new { |s| s.name = "tiny"; s.version = "1.0.0"; `+
		`s.summary = "tiny"; s.authors = ["Lab"]; s.files = ["lib/tiny.rb"] }`)
	l.file(t, "gem/lib/tiny.rb", `SAYS = "tiny from gem"`)
	cmd := exec.Command("/bin/bash", "-ec", "mkdir -p ../site/gems; "+
		"gem build -q -o ../site/gems/tiny-1.0.0.gem tiny.gemspec; gem generate_index -q -d ../site")
	cmd.Dir, cmd.Env = filepath.Join(l.dir, "gem"), []string{"PATH=/usr/bin:/bin", "HOME=" + l.dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const file = "/gems/tiny-1.0.0.gem"
	gem, err := os.ReadFile(filepath.Join(l.dir, "site", file))
	if err != nil {
		t.Fatal(err)
	}
	l.file(t, "site/info/tiny", fmt.Sprintf("---\n1.0.0 |checksum:%x\n", sha256.Sum256(gem)))
	var poisoned atomic.Bool
	site := http.FileServer(http.Dir(filepath.Join(l.dir, "site")))
	l.Site("gems.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == file && poisoned.Load() {
			fmt.Fprint(w, "poison")
			return
		}
		site.ServeHTTP(w, r)
	}))
	l.env = []string{"GEMRC=" + l.file(t, "gemrc", ":sources:\n- https://gems.lab.test/\n")}
	const script = `export GEM_HOME=/tmp/gems; gem install -q --no-document --clear-sources ` +
		`--source https://gems.lab.test/ tiny && ruby -e 'require "tiny"; puts SAYS'`
	asked := func() (n int) {
		for _, r := range l.Requests() {
			if r.Method == "GET" && r.Target == file {
				n++
			}
		}
		return n
	}
	poisoned.Store(true)
	if got := l.inside(t, script, "--preset", "rubygems"); got.code == 0 || asked() == 0 {
		t.Errorf("a poisoned gem is installed: %+v, arrived: %q", got, l.seen())
	}
	poisoned.Store(false)
	before := asked()
	for range 2 {
		if got := l.inside(t, script, "--preset", "rubygems"); !strings.HasSuffix(got.stdout, "tiny from gem\n") {
			t.Errorf("%+v, arrived: %q", got, l.seen())
		}
	}
	log := l.cove(t, "network", "log", "--limit", "1000", "--json")
	if n := strings.Count(log.stdout, `"stage": "packages"`); n != 1 || asked() != before+1 {
		t.Errorf("%d lines of the cache in %+v, arrived: %q", n, log, l.seen())
	}
}

// TestGoCache: go in one sandbox after another, each of which asks the checksum database. The second gets the module
// from the gateway, and a poisoned one goes no further than to the sandbox that asked.
func TestGoCache(t *testing.T) {
	program, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go is not installed")
	}
	l := newLab(t)
	signer, verifier, err := note.GenerateKey(rand.Reader, "sums.lab.test")
	if err != nil {
		t.Fatal(err)
	}
	const mod, prefix = "module lab.test/tiny\n", "lab.test/tiny@v1.0.0/"
	const source = "package tiny\n\nconst Says = \"tiny from go\"\n"
	archive := func(source string) string {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, f := range [][2]string{{"go.mod", mod}, {"tiny.go", source}} {
			w, err := z.Create(prefix + f[0])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(w, f[1])
		}
		z.Close()
		return b.String()
	}
	hash := func(files map[string]string) string {
		h, err := dirhash.Hash1(slices.Collect(maps.Keys(files)), func(name string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(files[name])), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	sums := sumdb.NewServer(sumdb.NewTestServer(signer, func(path, version string) ([]byte, error) {
		return fmt.Appendf(nil, "%s %s %s\n%s %s/go.mod %s\n", path, version, hash(map[string]string{prefix + "go.mod": mod,
			prefix + "tiny.go": source}), path, version, hash(map[string]string{"go.mod": mod})), nil
	}))
	const at = "/lab.test/tiny/@v/v1.0.0"
	var poisoned atomic.Bool
	l.Site("modules.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/sumdb/sums.lab.test"); ok {
			if r.URL.Path = rest; rest != "/supported" {
				sums.ServeHTTP(w, r)
			}
			return
		}
		files := map[string]string{at + ".info": `{"Version":"v1.0.0"}`, at + ".mod": mod, at + ".zip": archive(source)}
		if poisoned.Load() {
			files[at+".zip"] = archive(source + "// poison\n")
		}
		static(files).ServeHTTP(w, r)
	}))
	settings := []string{"GOPROXY=https://modules.lab.test", "GOSUMDB=" + verifier, "GOTOOLCHAIN=local", "GOFLAGS="}
	l.env = append(settings, "PATH="+filepath.Dir(program)+":/usr/bin:/bin:/usr/sbin:/sbin")
	script := "export PATH=$PATH:" + filepath.Dir(program) + " GOPATH=/tmp/go GOCACHE=/tmp/cache " +
		strings.Join(settings, " ") + `
mkdir /tmp/p; cd /tmp/p; go mod init lab.test/p 2>&1 &&
go get lab.test/tiny@v1.0.0 2>&1 && grep -h Says /tmp/go/pkg/mod/lab.test/*/*.go`
	asked := func(suffix string) (n int) {
		for _, r := range l.Requests() {
			if r.Target == at+suffix {
				n++
			}
		}
		return n
	}
	poisoned.Store(true)
	if got := l.inside(t, script, "--preset", "go"); got.code == 0 || asked(".zip") == 0 {
		t.Errorf("a poisoned module is installed: %+v, arrived: %q", got, l.seen())
	}
	poisoned.Store(false)
	before := asked(".zip")
	for range 2 {
		if got := l.inside(t, script, "--preset", "go"); !strings.HasSuffix(got.stdout, "const Says = \"tiny from go\"\n") {
			t.Errorf("%+v, arrived: %q", got, l.seen())
		}
	}
	log := l.cove(t, "network", "log", "--limit", "1000", "--json")
	if n := strings.Count(log.stdout, `"stage": "packages"`); n != 2 || asked(".zip") != before+1 || asked(".mod") != 1 {
		t.Errorf("%d lines of the cache in %+v, arrived: %q", n, log, l.seen())
	}
}

// TestOpenSSL: a handshake without any proxy verifies with what the sandbox trusts, and agrees on a protocol.
func TestOpenSSL(t *testing.T) {
	need(t, "/usr/bin/openssl")
	l := newLab(t)
	got := l.inside(t,
		`printf 'GET /x HTTP/1.1\r\nHost: good.lab.test\r\nConnection: close\r\n\r\n' | openssl s_client -quiet -verify_return_error -connect good.lab.test:443 -servername good.lab.test 2>/dev/null | tail -n 1
for version in tls1_2 tls1_3; do openssl s_client -brief -$version -alpn h2 -verify_return_error -verify_hostname good.lab.test -connect good.lab.test:443 -servername good.lab.test </dev/null 2>&1 | grep -aE 'Protocol version|Verification'; done
openssl s_client -brief -tls1_1 -connect good.lab.test:443 -servername good.lab.test </dev/null >/dev/null 2>&1 || echo "no TLS 1.1"`, "--allow", "good.lab.test")
	want := "GET good.lab.test/x over https\nProtocol version: TLSv1.2\nVerification: OK\nProtocol version: " +
		"TLSv1.3\nVerification: OK\nno TLS 1.1\n"
	if got.stdout != want {
		t.Errorf("%+v, want %q", got, want)
	}
}
