package enginetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine"
)

var crowdTests = []test{
	{name: "many processes at once", run: manyProcesses},
	{name: "many sandboxes at once", run: manySandboxes},
	{name: "sandboxes do not see each other's files", run: separateFiles},
}

func manyProcesses(t *testing.T, x *env) {
	sb := x.bound(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 4 {
				text := fmt.Sprintf("%d.%d", i, j)
				p, err := sb.Guest().Start(x.ctx, command("echo", text))
				if err != nil {
					t.Errorf("%s: Start: %v", text, err)
					return
				}
				if r, err := x.collect(p); err != nil || r.stdout != text+"\n" || r.exit.Code != 0 {
					t.Errorf("%s: %+v, %v", text, r, err)
				}
			}
		})
	}
	all.Wait()
	eventually(t, "every process is forgotten", func() bool {
		h, err := sb.Guest().Health(x.ctx)
		return err == nil && h.Processes == 0
	})
}

func manySandboxes(t *testing.T, x *env) {
	boxes := make([]engine.Sandbox, x.suite.Sandboxes)
	var all sync.WaitGroup
	for i := range boxes {
		all.Go(func() {
			sb, err := x.eng.Prepare(x.ctx, x.template())
			if err != nil {
				t.Errorf("sandbox %d: Prepare: %v", i, err)
				return
			}
			boxes[i] = sb
			if err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox"}); err != nil {
				t.Errorf("sandbox %d: Bind: %v", i, err)
				return
			}
			p, err := sb.Guest().Start(x.ctx, command("echo", fmt.Sprint(i)))
			if err != nil {
				t.Errorf("sandbox %d: Start: %v", i, err)
				return
			}
			if r, err := x.collect(p); err != nil || r.stdout != fmt.Sprintln(i) {
				t.Errorf("sandbox %d: %+v, %v", i, r, err)
			}
		})
	}
	all.Wait()
	for _, sb := range boxes {
		if sb != nil {
			all.Go(func() { x.destroy(t, sb) })
		}
	}
	all.Wait()
}

func separateFiles(t *testing.T, x *env) {
	one, two := x.bound(t), x.bound(t)
	for _, dir := range []string{"/work", "/tmp", "/run", "/home/cove", "/dev/shm"} {
		path := dir + "/secret"
		x.write(t, one, path, "one's")
		if b, err := two.Guest().ReadFile(x.ctx, path, 100); err == nil {
			t.Errorf("the other sandbox reads %q from %s", b, path)
		}
	}
	x.read(t, one, "/work/secret", "one's") // the control
}
