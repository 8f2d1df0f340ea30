package sandboxes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// serviceImages builds images of the program in testdata/neighbour: "plain", which exposes a port, and "checked", with
// a user, files of that user's and a check of health.
func serviceImages(t *testing.T, l *lab) {
	t.Helper()
	dir := l.in("context")
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "neighbour"), "./testdata/neighbour")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.write("context/data/word", "made")
	const from = "FROM scratch\nCOPY neighbour /bin/neighbour\nSTOPSIGNAL usr1\n"
	l.write("context/plain", from+"ENV PORT=8080 WORD=image\nEXPOSE 8080 9/udp\nENTRYPOINT [\"/bin/neighbour\"]\n")
	l.write("context/checked", from+"COPY --chown=70:70 data /data\nENV PORT=9090\nUSER 70:70\nWORKDIR /data\n"+
		"HEALTHCHECK --interval=200ms CMD [\"/bin/neighbour\", \"check\"]\nENTRYPOINT [\"/bin/neighbour\"]\n")
	for _, name := range []string{"plain", "checked"} {
		l.must("cove", "image", "build", "-t", "svc-"+name+":1", "-f", l.in("context/"+name), dir)
	}
}

// asks has a program in a sandbox ask a service, and returns the answer, or "no" where it gets none.
func (l *lab) asks(sandbox, to, line string) string {
	l.t.Helper()
	out, err := l.run("cove", "exec", sandbox, "--", "bash", "-c",
		`exec 3<>"/dev/tcp/$1" 2>/dev/null && echo "$2" >&3 && read -r -t 20 answer <&3 && echo "$answer"`, "-", to, line)
	if err != nil {
		return "no"
	}
	return strings.TrimSpace(out)
}

// pid1 is the first process of a sandbox, as the machine counts.
func (l *lab) pid1(sandbox string) int {
	l.t.Helper()
	namespace := strings.TrimSpace(l.must("cove", "exec", sandbox, "--", "readlink", "/proc/self/ns/pid"))
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, dir := range all {
		if its, _ := os.Readlink(dir + "/ns/pid"); its != namespace {
			continue
		}
		status, _ := os.ReadFile(dir + "/status")
		if first, _ := regexp.Match(`(?m)^NSpid:.*\t1$`, status); first {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	l.t.Fatalf("%s has no first process in %s", sandbox, namespace)
	return 0
}

// states are those of a sandbox and its services.
func (l *lab) states(sandbox string) string {
	s := l.info(sandbox)
	all := []string{s.State}
	for _, of := range s.Services {
		all = append(all, of.Name+" "+of.State)
	}
	return strings.Join(all, ", ")
}

// TestServices: the services of a sandbox run before it and as their images say, are reached by their names within the
// group alone, keep their files, and stop, pause and go with their sandbox.
func TestServices(t *testing.T) { serves(t, newLab(t), "native") }

// TestServicesOfDocker: so it is beside a container of a daemon.
func TestServicesOfDocker(t *testing.T) { serves(t, newLab(t).docker(), "docker") }

// TestServicesWithoutRoot: so it is for an ordinary user with subordinate ids.
func TestServicesWithoutRoot(t *testing.T) { serves(t, newLab(t).asUser(subordinate), "native") }

func serves(t *testing.T, l *lab, engine string) {
	serviceImages(t, l)
	l.must("cove", "new", "--empty", "--name", "web", "--no-attach", "--service", "db=svc-plain:1", "--service",
		"cache=svc-checked:1", "--service-env", "db=WORD=own", "--engine", engine)
	expect := func(sandbox, to, line, want string) {
		t.Helper()
		if got := l.asks(sandbox, to, line); got != want {
			t.Errorf("%s asks %s: %q says %q, want %q", sandbox, to, line, got, want)
		}
	}
	s := l.info("web")
	if len(s.Services) != 2 || s.Services[0].Name != "db" || s.Services[0].Sandbox != "web.db" ||
		s.Services[1].Image != "svc-checked:1" || s.Network != "limited" {
		t.Errorf("%+v", s)
	}
	expect("web", "db/8080", "id", "1000 db")
	expect("web", "db/8080", "env WORD", "own")
	expect("web", "cache/9090", "id", "70 cache")
	expect("web", "cache/9090", "dial db:8080", "1000 db")
	expect("web", "db/8080", "dial cache:9090", "70 cache")
	expect("web", "db/8081", "id", "no")
	expect("web", "db/3128", "CONNECT db:8080 HTTP/1.0\n", "no") // the gateway of db's own programs
	expect("web", "other/8080", "id", "no")
	expect("web", "example.com/80", "id", "no")
	if all := l.list().Sandboxes; len(all) != 1 {
		t.Errorf("services are listed: %+v", all)
	}
	// A service is a sandbox to work in, which begins and ends with its own.
	if out := l.must("cove", "exec", "web.cache", "--", "/bin/neighbour", "ask", "127.0.0.1:9090",
		"id"); out != "70 cache\n" {
		t.Errorf("%q", out)
	}
	for _, verb := range []string{"stop", "start", "pause"} {
		if out, err := l.run("cove", verb, "web.db"); err == nil || !strings.Contains(err.Error(), "is a service of web") {
			t.Errorf("%s: %q, %v", verb, out, err)
		}
	}
	// Its files outlive it, and its server.
	expect("web", "cache/9090", "get", "made")
	expect("web", "cache/9090", "put kept", "put")
	if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	expect("web", "cache/9090", "get", "kept")
	l.must("cove", "pause", "web")
	if got := l.states("web"); got != "paused, db paused, cache paused" {
		t.Error(got)
	}
	l.must("cove", "resume", "web")
	expect("web", "db/8080", "id", "1000 db")
	l.must("cove", "stop", "web")
	if got := l.states("web"); got != "stopped, db stopped, cache stopped" {
		t.Error(got)
	}
	l.must("cove", "start", "web")
	expect("web", "cache/9090", "get", "user defined signal 1") // its image's, on which it wrote that
	expect("web", "cache/9090", "put kept", "put")
	// One whose program ends says so, and is started again.
	expect("web", "cache/9090", "exit", "no")
	l.eventually("the end of a service", func() bool { return l.states("web") == "running, db running, cache stopped" })
	if why := l.info("web").Services[1].Error; !strings.Contains(why, "exit code 7") ||
		!strings.Contains(why, "it is asked to end") {
		t.Errorf("it says %q", why)
	}
	expect("web", "cache/9090", "get", "no")
	l.must("cove", "start", "web")
	expect("web", "cache/9090", "get", "kept")
	// Services end with a sandbox that ends by itself.
	if err := syscall.Kill(l.pid1("web"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.eventually("the end of all", func() bool { return l.states("web") == "stopped, db stopped, cache stopped" })
	l.must("cove", "start", "web")
	expect("web", "cache/9090", "get", "user defined signal 1")
	// Names go with the sandbox's.
	l.must("cove", "rename", "web", "site")
	l.must("cove", "exec", "site.db", "--", "/bin/neighbour", "ask", "127.0.0.1:8080", "id")
	l.must("cove", "destroy", "--yes", "site")
	if left := l.left(); len(left) > 0 {
		t.Errorf("workspaces are left: %v", left)
	}
}

// TestServicesFail: a service that cannot be leaves nothing, and says why with the end of its output.
func TestServicesFail(t *testing.T) {
	l := newLab(t)
	serviceImages(t, l)
	for _, c := range []struct {
		flags []string
		says  []string
	}{
		{[]string{"--service", "db=svc-plain:1", "--service", "bad=svc-plain:1", "--service-env", "bad=FAIL=reasons"},
			[]string{"the service bad does not run", "exit code 3", "it has to fail: reasons"}},
		{[]string{"--service", "db=missing:1"}, []string{"the service db", "cove image pull missing:1"}},
		{[]string{"--service", "localhost=svc-plain:1"}, []string{"not a name"}},
		{[]string{"--service", "db=host"}, []string{"no image"}},
	} {
		out, err := l.run(slices.Concat([]string{"cove", "new", "--empty", "--name", "web", "--no-attach"}, c.flags)...)
		if err == nil {
			t.Errorf("%v: %q", c.flags, out)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %v; want %q", c.flags, err, says)
			}
		}
		if all := l.list(); len(all.Sandboxes)+len(all.Orphans)+len(l.left()) > 0 {
			t.Errorf("%v: left are %+v, %v", c.flags, all, l.left())
		}
	}
}

// TestServicesInterrupted: a command that is interrupted, and a server that is killed, while a service starts leave
// nothing.
func TestServicesInterrupted(t *testing.T) {
	l := newLab(t)
	serviceImages(t, l)
	for _, kill := range []string{"the command", "the server"} {
		c := l.command("cove", "new", "--empty", "--name", "web", "--no-attach", "--service", "db=svc-plain:1",
			"--service-env", "db=MUTE=1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		l.eventually("a service that starts", func() bool {
			_, err := l.run("cove", "exec", "web.db", "--", "/bin/neighbour", "ask", "127.0.0.1:1", "id")
			return len(l.left()) == 2 && err != nil
		})
		if kill == "the command" {
			c.Process.Signal(syscall.SIGINT)
		} else if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil {
			t.Errorf("%s is killed, and the command succeeds", kill)
		}
		l.eventually("the end of what "+kill+" began", func() bool {
			return len(l.list().Sandboxes) == 0 && len(l.left()) == 0
		})
		if groups, _ := filepath.Glob("/sys/fs/cgroup/*/cove-sb-test/*web*"); len(groups) > 0 {
			t.Errorf("%s: %v", kill, groups)
		}
	}
}

// TestStrangersOfServices: no sandbox outside of a group looks up or reaches its services, whatever its network and
// whoever has made it; and they reach nothing of the machine that their sandbox may not.
func TestStrangersOfServices(t *testing.T) { keepsStrangers(t, newLab(t), "native") }

// TestStrangersOfDockersServices: so it is for containers of a daemon.
func TestStrangersOfDockersServices(t *testing.T) { keepsStrangers(t, newLab(t).docker(), "docker") }

func keepsStrangers(t *testing.T, l *lab, engine string) {
	serviceImages(t, l)
	l.must("cove", "new", "--empty", "--name", "web", "--no-attach", "--service", "db=svc-plain:1", "--engine", engine)
	if got := l.asks("web", "db/8080", "id"); got != "1000 db" { // the control
		t.Fatalf("%q", got)
	}
	l.must("cove", "new", "--empty", "--name", "none", "--no-attach", "--engine", engine)
	l.must("cove", "new", "--empty", "--name", "open", "--no-attach", "--network", "open", "--engine", engine)
	l.must("cove", "new", "--empty", "--name", "other", "--no-attach", "--service", "cache=svc-plain:1", "--engine",
		engine)
	address := strings.Fields(l.must("cove", "exec", "web", "--", "getent", "hosts", "db"))[0]
	if got := l.asks("web", address+"/8080", "id"); got != "1000 db" { // the control
		t.Fatalf("%q", got)
	}
	for _, stranger := range []string{"none", "open", "other"} {
		for _, to := range []string{"db/8080", "DB/8080", "db./8080", "db.web/8080", "web.db/8080", address + "/8080",
			"127.0.0.1/8080"} {
			if got := l.asks(stranger, to, "id"); got != "no" {
				t.Errorf("%s reaches %s: %q", stranger, to, got)
			}
		}
		if out, err := l.run("cove", "exec", stranger, "--", "getent", "hosts", "db"); err == nil {
			t.Errorf("%s looks db up: %q", stranger, out)
		}
	}
	if got := l.asks("other", "cache/8080", "dial db:8080"); !strings.HasPrefix(got, "no: ") {
		t.Errorf("another group's service reaches db: %q", got)
	}
	// The ports at which the gateway listens in a service, for its programs alone, are not reached by its sandbox.
	for _, port := range []string{"1", "53", "3128"} {
		for _, line := range []string{"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r", "id"} {
			if got := l.asks("web", "db/"+port, line); got != "no" {
				t.Errorf("the sandbox reaches port %s of its service: %q", port, got)
			}
		}
	}
	// A service reaches neither the machine nor the sandbox that it belongs to, by any of their addresses.
	for _, to := range []string{"127.0.0.1:22", "host.cove.internal:22", "web:22", "example.com:80"} {
		if got := l.asks("web", "db/8080", "dial "+to); !strings.HasPrefix(got, "no: ") {
			t.Errorf("a service reaches %s: %q", to, got)
		}
	}
}

// TestServicesOfAnotherUser: what one user of the machine has beside a sandbox is not there for another one: neither
// from a sandbox of the other's, nor by the API.
func TestServicesOfAnotherUser(t *testing.T) {
	l := newLab(t)
	serviceImages(t, l)
	base := l.serve()
	keeper, stranger := l.user(base, 4242), l.user(base, 4243)
	for _, c := range []struct {
		who  user
		body string
	}{
		{keeper, `{"name":"web","services":[{"name":"db","image":"svc-plain:1"}]}`},
		{stranger, `{"name":"web","network":{"enabled":true,"mode":"open"}}`},
		{stranger, `{"name":"own","services":[{"name":"cache","image":"svc-plain:1"}]}`},
	} {
		if code, text := c.who.ask(t.Context(), "POST", "/sandboxes", c.body); code != 200 ||
			!strings.Contains(text, "event: created") {
			t.Fatalf("%s: %d %s", c.body, code, text)
		}
	}
	asks := func(who user, sandbox string) string {
		_, text := who.ask(t.Context(), "POST", "/sandboxes/"+sandbox+"/exec", `{"args":["bash","-c",`+
			`"getent hosts db; exec 3<>/dev/tcp/db/8080 && echo id >&3 && head -n 1 <&3"]}`)
		return text
	}
	if got := asks(keeper, "web"); !strings.Contains(got, "1000 db") { // the control
		t.Fatalf("the keeper's own: %s", got)
	}
	for _, sandbox := range []string{"web", "own"} {
		if got := asks(stranger, sandbox); strings.Contains(got, "1000 db") || strings.Contains(got, "fd63") ||
			!strings.Contains(got, "event:") {
			t.Errorf("a stranger's %s: %s", sandbox, got)
		}
	}
	if code, _ := keeper.ask(t.Context(), "GET", "/sandboxes/web.db", ""); code != 200 {
		t.Errorf("the keeper's own service: %d", code)
	}
	for _, path := range []string{"GET /sandboxes/web.db", "POST /sandboxes/web.db/exec"} {
		verb, path, _ := strings.Cut(path, " ")
		if code, text := stranger.ask(t.Context(), verb, path, `{"args":["true"]}`); code != 404 {
			t.Errorf("a stranger's %s %s: %d %s", verb, path, code, text)
		}
	}
	// A service may have the images alone that a sandbox may.
	for _, image := range []string{"dir:/etc", "dir:" + l.in("context"), "tar:" + l.in("x.tar")} {
		code, text := stranger.ask(t.Context(), "POST", "/sandboxes",
			`{"name":"more","services":[{"name":"db","image":"`+image+`"}]}`)
		if code != 403 {
			t.Errorf("a service of %s: %d %s", image, code, text)
		}
	}
}
