package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/build/progress"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runner writes what commands say into the layer, in place of a sandbox: "NAME=TEXT" makes a file; "exit" fails; "say"
// says its own words; "NAME=TURN" makes one with the number of commands until then; "meet" ends when others do, and
// with a word it fails then; "hang" ends with the build.
type runner struct {
	mu       sync.Mutex
	commands []Command
	err      error
	meeting  *sync.WaitGroup // where commands "meet"
	hint     string          // of what fails
	turn     int             // of commands
}

func (r *runner) Run(ctx context.Context, c Command) (Ended, error) {
	r.mu.Lock()
	r.commands = append(r.commands, c)
	r.turn++
	turn := fmt.Sprint(r.turn)
	r.mu.Unlock()
	if r.err != nil {
		return Ended{}, r.err
	}
	for _, m := range c.Mounts { // a mount has a place
		if err := os.MkdirAll(filepath.Join(engine.Changes(c.Layer), m.Target), 0o755); err != nil {
			return Ended{}, err
		}
	}
	words := strings.Fields(c.Args[len(c.Args)-1])
	switch name, text, ok := strings.Cut(words[0], "="); {
	case words[0] == "exit":
		return Ended{Code: 3, Hint: r.hint}, nil
	case words[0] == "hang":
		<-ctx.Done()
		return Ended{}, ctx.Err()
	case words[0] == "meet": // until all others do
		r.meeting.Done()
		r.meeting.Wait()
		if len(words) > 1 {
			return Ended{Code: 3, Hint: r.hint}, nil
		}
	case words[0] == "say":
		for _, word := range words[1:] {
			if _, err := c.Out.Write([]byte(word)); err != nil {
				return Ended{}, err
			}
		}
	case ok:
		if text == "TURN" {
			text = turn
		}
		return Ended{}, os.WriteFile(filepath.Join(engine.Changes(c.Layer), name), []byte(text), 0o644)
	}
	return Ended{}, nil
}

type lab struct {
	t *testing.T
	runner
	store  *image.Store
	dir    string // the context
	images string // of the store
	clock  clock.Clock
	notes  notes
	said   bytes.Buffer

	inspect func(context.Context, Failed) error
	pull    func(ctx context.Context, ref, platform string, say func(string, ...any)) error
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files have owners")
	}
	l := &lab{t: t, dir: t.TempDir(), images: filepath.Join(t.TempDir(), "images"), clock: clock.Real()}
	var err error
	if l.store, err = image.Open(image.Options{Dir: l.images}); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) build(dockerfile string, change ...func(*Request)) (image.Image, error) {
	l.t.Helper()
	l.commands = nil
	l.said.Reset()
	from, err := layer.OpenContext(l.dir, "", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer from.Close()
	r := Request{Context: from, Dockerfile: []byte(dockerfile), Platform: "linux/" + runtime.GOARCH,
		Host: "linux/" + runtime.GOARCH}
	for _, f := range change {
		f(&r)
	}
	l.notes.Builds = image.BuildsOf(l.store)
	o := Options{Store: &l.notes, Runner: l, Clock: l.clock, Out: &l.said,
		Inspect: l.inspect, Pull: l.pull}
	return Build(l.t.Context(), o, r)
}

// TestCache: a command runs again when what it depends on changes, and then alone.
func TestCache(t *testing.T) {
	l := newLab(t)
	l.write("a", "A")
	const dockerfile = "FROM scratch AS one\nRUN one=1\nFROM scratch\nARG WORD=none\nCOPY a /\n" +
		"RUN --mount=from=one,target=/m --mount=target=/c --mount=type=cache,target=/k x=$WORD\nRUN y=2"
	runs := func(dockerfile string, want int, change ...func(*Request)) image.Image {
		t.Helper()
		img, err := l.build(dockerfile, change...)
		if err != nil || len(l.commands) != want {
			t.Errorf("%d commands ran, want %d: %v\n%s", len(l.commands), want, err, l.said.String())
		}
		return img
	}
	first := runs(dockerfile, 3)
	if again := runs(dockerfile, 0); again.Digest != first.Digest {
		t.Errorf("%s, and again %s", first.Digest, again.Digest)
	}
	runs(dockerfile, 2, func(r *Request) { r.Args = map[string]string{"WORD": "other"} })
	runs(dockerfile, 0, func(r *Request) { r.Secrets = map[string]secret.Value{"s": secret.New("some-secret")} })
	runs(strings.Replace(dockerfile, "one=1", "one=2", 1), 3)
	runs(strings.Replace(dockerfile, "target=/k", "target=/l", 1), 2)
	runs(dockerfile, 3, func(r *Request) { r.Fresh = true })
	l.write("a", "B")
	runs(dockerfile, 2)
	l.write("unrelated", "but mounted")
	runs(dockerfile, 2)
	root, err := l.store.Resolve(t.Context(), first.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"x": true, "y": true, "a": true, "m": false, "c": false, "k": false} {
		if there := layer.Find(root.Stack(), name).Dir != ""; there != want {
			t.Errorf("%s is in the image: %v", name, there)
		}
	}
}

// TestFailures: a failure says where, and leaves neither an image nor a layer.
func TestFailures(t *testing.T) {
	l := newLab(t)
	l.hint = "--allow a"
	broken := errors.New("broken")
	for _, test := range []struct {
		dockerfile, want string
		err              error
	}{
		{"FROM scratch\nRUN exit", "line 2 of the Dockerfile: the command ended with exit code 3: RUN exit (--allow a)",
			nil},
		{"FROM scratch\n\nRUN x=1", "line 3 of the Dockerfile: broken", broken},
		{"FROM scratch\nRUN --mount=type=secret,id=x,required=true x=1", "the secret \"x\" is required", nil},
		{"FROM scratch\nRUN --mount=source=../x,target=/m x=1", "contains \"..\"", nil},
		{"FROM scratch\nRUN --mount=source=x,target=/m x=1", "is not there", nil},
		{"FROM scratch\nUSER nobody\nRUN x=1", "there is no user", nil},
	} {
		l.err = test.err
		if _, err := l.build(test.dockerfile, func(r *Request) { r.Name = "failed" }); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.dockerfile, err, test.want)
		}
	}
	l.err = nil
	if all, err := l.store.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("there are images: %v, %v", all, err)
	}
	if _, err := l.build("FROM scratch\nRUN x=1"); err != nil || len(l.commands) != 1 {
		t.Errorf("a command that failed is not run again: %v", err)
	}
}

// TestSideBySide: stages that do not need each other are built side by side, and once; a layer that two of them make is
// made once, too. Where one fails, the others end, and its error is that of the build.
func TestSideBySide(t *testing.T) {
	l := newLab(t)
	l.meeting = new(sync.WaitGroup)
	l.meeting.Add(2)
	const stages = "FROM scratch AS below\nRUN b=1\nFROM below AS one\nRUN meet\nRUN o=1\n" +
		"FROM below AS two\nRUN t=2\nRUN meet\n" +
		"FROM scratch\nCOPY --from=one o /\nCOPY --from=two t /\n"
	img, err := l.build(stages)
	if err != nil || len(l.commands) != 5 {
		t.Fatalf("%d commands ran: %v\n%s", len(l.commands), err, l.said.String())
	}
	root, err := l.store.Resolve(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"o", "t"} {
		if layer.Find(root.Stack(), name).Dir == "" {
			t.Errorf("%s is not in the image", name)
		}
	}
	const same = "FROM scratch AS one\nRUN s=1\nFROM scratch AS two\nRUN s=1\nFROM scratch\nCOPY --from=one s /a\n" +
		"COPY --from=two s /b\n"
	if _, err := l.build(same); err != nil || len(l.commands) != 1 {
		t.Errorf("the same layer: %d commands ran: %v", len(l.commands), err)
	}
	l.meeting.Add(2)
	const fails = "FROM scratch AS hangs\nRUN meet\nRUN hang\nFROM hangs AS waits\nRUN w=1\nFROM scratch AS fails\n" +
		"RUN meet fail\nFROM scratch\nCOPY --from=waits w /\nCOPY --from=fails w /"
	_, err = l.build(fails)
	if err == nil || err.Error() != "line 7 of the Dockerfile: the command ended with exit code 3: RUN meet fail" {
		t.Errorf("%v", err)
	}
	if said := l.said.String(); !strings.Contains(said, "ERROR: line 7") || strings.Count(said, "ERROR") != 1 ||
		strings.Contains(said, "RUN w=1") {
		t.Errorf("it says\n%s", said)
	}
}

// TestInspectInTurn: where the user looks into failures, one command runs after the other.
func TestInspectInTurn(t *testing.T) {
	l := newLab(t)
	l.inspect = func(context.Context, Failed) error { return nil }
	dockerfile, last := "", "FROM scratch\n"
	for i := range 30 {
		dockerfile += fmt.Sprintf("FROM scratch AS s%d\nRUN f%02d=1\n", i, i)
		last += fmt.Sprintf("COPY --from=s%d f%02d /\n", i, i)
	}
	if _, err := l.build(dockerfile + last); err != nil || len(l.commands) != 30 {
		t.Fatalf("%d commands ran: %v", len(l.commands), err)
	}
	for i, c := range l.commands {
		if want := fmt.Sprintf("f%02d=1", i); c.Args[2] != want {
			t.Fatalf("command %d is %s, want %s", i, c.Args[2], want)
		}
	}
}

// TestPlatform: an image is for the platform that was asked for, a stage for its own, and a base has to be for it.
func TestPlatform(t *testing.T) {
	l := newLab(t)
	l.write("a", "A")
	other := func(r *Request) { r.Platform, r.Name = "linux/s390x", "other" }
	const dockerfile = "FROM --platform=$BUILDPLATFORM scratch AS here\nRUN x=$BUILDARCH\n" +
		"FROM scratch\nARG TARGETARCH\nENV ARCH=$TARGETARCH\nCOPY --from=here x /"
	img, err := l.build(dockerfile, other)
	if err != nil || img.Platform != "linux/s390x" || !slices.Contains(img.Config.Env, "ARCH=s390x") {
		t.Errorf("%+v, %v", img, err)
	}
	if same, err := l.build(dockerfile); err != nil || same.Digest == img.Digest || same.Platform == img.Platform {
		t.Errorf("for this machine it is %+v, %v", same, err)
	}
	if _, err := l.build("FROM other", other); err != nil {
		t.Errorf("over the image: %v", err)
	}
	for _, dockerfile := range []string{"FROM other", "FROM --platform=linux/riscv64 other"} {
		if _, err := l.build(dockerfile); cove.ErrorCode(err) != cove.Unsupported ||
			!strings.Contains(err.Error(), "for linux/s390x, and the stage for linux/") {
			t.Errorf("%s: %v", dockerfile, err)
		}
	}
	if _, err := l.build("FROM scratch", func(r *Request) { r.Platform = "windows/amd64" }); err == nil {
		t.Error("there is an image for another system")
	}
}

// TestPull: images that the store lacks are pulled once, for the platform of their stage, where the user says so.
func TestPull(t *testing.T) {
	l := newLab(t)
	const dockerfile = "FROM --platform=linux/s390x registry.example/base AS one\nFROM scratch\n" +
		"COPY --from=registry.example/files /f /g\nCOPY --from=registry.example/files /f /h\n"
	all := strings.Replace(dockerfile, "COPY", "COPY --from=one /f /e\nCOPY", 1)
	_, err := l.build(all)
	if cove.ErrorCode(err) != cove.ImageMissing || !strings.Contains(cove.ErrorHint(err), "cove image pull registry.exa") {
		t.Errorf("without: %v", err)
	}
	l.write("f", "F")
	var mu sync.Mutex
	var pulled []string
	l.pull = func(_ context.Context, ref, platform string, say func(string, ...any)) error {
		say("pulling %s", ref)
		mu.Lock()
		pulled = append(pulled, ref+" "+platform)
		mu.Unlock()
		other := &lab{t: t, store: l.store, dir: l.dir, clock: l.clock}
		_, err := other.build("FROM scratch\nCOPY f /", func(r *Request) { r.Name, r.Platform = ref, platform })
		return err
	}
	for range 2 {
		if _, err := l.build(all); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(pulled)
	want := []string{"registry.example/base linux/s390x", "registry.example/files linux/" + runtime.GOARCH}
	if !slices.Equal(pulled, want) {
		t.Errorf("it pulled %q, want %q", pulled, want)
	}
	l.pull = func(context.Context, string, string, func(string, ...any)) error {
		return cove.Errorf(cove.Unavailable, "the registry is down")
	}
	if _, err := l.build("FROM registry.example/none"); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("where the registry is down: %v", err)
	}
}

// TestInspect: a command that fails can be looked into, in the state before it; the build fails all the same.
func TestInspect(t *testing.T) {
	l := newLab(t)
	l.write("etc", "")
	const dockerfile = "FROM scratch\nENV A=b\nWORKDIR /here\nRUN %s\nRUN --mount=type=cache,target=/k exit"
	looked := 0
	l.inspect = func(_ context.Context, f Failed) error {
		looked++
		c := f.Shell
		if layer.Find(c.Stack, "one").Dir == "" || f.Code != 3 || !strings.HasSuffix(f.Text, " exit") ||
			!slices.Equal(c.Args, []string{"/bin/sh"}) || c.Dir != "/here" || !slices.Contains(c.Env, "A=b") ||
			len(c.Mounts) != 1 || c.Layer == l.commands[len(l.commands)-1].Layer {
			t.Errorf("%+v", f)
		}
		return nil
	}
	for _, shell := range []string{"one=1", "one=1\nCOPY etc /bin/sh"} {
		if _, err := l.build(fmt.Sprintf(dockerfile, shell)); err == nil || !strings.Contains(err.Error(), "exit code 3") {
			t.Errorf("%v", err)
		}
		if looked == 0 && !strings.Contains(l.said.String(), "no shell") {
			t.Errorf("without a shell it says %s", l.said.String())
		}
	}
	if looked != 1 {
		t.Errorf("%d times", looked)
	}
}

// TestSecretsAreMasked: also where output comes in pieces, and where lines are longer than what is said at once.
func TestSecretsAreMasked(t *testing.T) {
	const one, two = "canary-7d1e55b4", "second-line-91"
	long := strings.Repeat("x", progress.MaxLine-7) + one + strings.Repeat("y", 3*progress.MaxLine)
	edge := strings.Repeat("x", progress.MaxLine-9) + one[:10] + " " + one[10:]
	l := newLab(t)
	given := func(r *Request) {
		r.Secrets = map[string]secret.Value{"s": secret.New(one + "\n" + two + "\n"), "short": secret.New("tiny")}
	}
	for _, say := range []string{one[:5] + " " + one[5:], "a" + one + "b" + two, long, edge, two[:13] + " " + two[13:]} {
		const line = "FROM scratch\nRUN --mount=type=secret,id=s,env=S --mount=type=secret,id=short say "
		if _, err := l.build(line+say, given); err != nil {
			t.Fatal(err)
		}
		said := l.said.String()
		_, output, _ := strings.Cut(said, "enters the sandbox")
		if strings.Contains(output, one[:8]) || strings.Contains(output, two) || !strings.Contains(output, "***") {
			t.Errorf("of %.60q it says %.200q", say, output)
		}
		env := strings.Join(l.commands[0].Env, " ")
		if m := l.commands[0].Mounts; len(m) != 1 || string(m[0].Memory.Data) != "tiny" || !strings.Contains(env, "S="+one) {
			t.Errorf("the command has %+v, %s", m, env)
		}
	}
	if _, err := l.build("FROM scratch", func(r *Request) {
		r.Secrets = map[string]secret.Value{"large": secret.New(strings.Repeat("x", MaxSecrets+1))}
	}); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("%v", err)
	}
}
