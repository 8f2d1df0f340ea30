package adversary

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// crashRows kill the process that owns sandboxes, at many points, and look at
// what the next one's sweep leaves (X1; invariant H6).
func crashRows() []row {
	var rows []row
	for _, stage := range []struct{ name, what string }{
		{"opened", "while nothing has been made"},
		{"prepared", "with prepared sandboxes"},
		{"bound", "with bound sandboxes"},
		{"running", "with running processes"},
		{"stubborn", "with processes that ignore every signal"},
		{"flooding", "in the middle of output"},
		{"filling", "while disks are being filled"},
		{"destroying", "while sandboxes are being destroyed"},
	} {
		rows = append(rows, row{id: "X1." + stage.name, invariant: "H6", what: "outlive the server, killed " + stage.what,
			test: func(c *trial) { c.ownerKilled(stage.name, 0) }})
	}
	return append(rows, row{id: "X1.anywhere", invariant: "H6",
		what: "outlive the server, killed at any moment of making and running", test: func(c *trial) {
			for i := range 12 {
				c.ownerKilled("anywhere", time.Duration(1+i*30)*time.Millisecond)
				if c.Failed() {
					return
				}
			}
		}})
}

const (
	ownerStage = "COVE_ADVERSARY_OWNER"
	ownerState = "COVE_ADVERSARY_STATE"
	ownerProbe = "COVE_PROBE"
	ownerDelay = "COVE_ADVERSARY_DELAY"
)

// ownerTold is one line of what the owner tells before it is killed.
type ownerTold struct {
	Word, ID   string
	PIDs       []int
	Namespaces []string
	Cgroups    []string
	Ready      bool
}

// ownerKilled runs the test binary again as an owner of sandboxes, kills it,
// sweeps, and looks for everything that it told of.
func (c *trial) ownerKilled(stage string, delay time.Duration) {
	c.Helper()
	c.baseline()
	before := c.steadyCensus()
	self, err := os.Executable()
	must(c, err)
	root, _, _ := strings.Cut(c.Name(), "/")
	cmd := exec.Command(self, "-test.run=^"+root+"$", "-test.v=false", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), ownerStage+"="+stage, ownerState+"="+c.suite.state, ownerProbe+"="+c.suite.path,
		fmt.Sprintf("%s=%d", ownerDelay, delay))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(c, err)
	must(c, cmd.Start())
	watchdog := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	var told []ownerTold
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var t ownerTold
		if json.Unmarshal(lines.Bytes(), &t) != nil {
			c.Logf("owner: %s", lines.Text())
			continue
		}
		if !t.Ready {
			told = append(told, t)
			continue
		}
		time.Sleep(delay)
		cmd.Process.Kill()
	}
	err = cmd.Wait()
	watchdog.Stop()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		c.Fatalf("not tested: the owner ended by itself: %v", err)
	}
	if len(told) == 0 && stage != "opened" && stage != "anywhere" && stage != "prepared" {
		c.Fatal("not tested: the owner told of no sandbox")
	}
	var swept engine.Swept
	clean := eventually(patience, func() bool {
		s, err := c.suite.engine.Sweep(c.Context())
		if err != nil {
			c.Logf("Sweep: %v", err)
		}
		swept.Sandboxes += s.Sandboxes
		swept.Items = append(swept.Items, s.Items...)
		for _, t := range told {
			if len(t.traces().left(c.suite.state)) > 0 {
				return false
			}
		}
		return len(c.census().cgroups) <= len(before.cgroups)
	})
	if !clean {
		for _, t := range told {
			c.Errorf("left behind (H6): %v", t.traces().left(c.suite.state))
		}
		c.Errorf("left behind (H6): control groups %v, were %v", c.census().cgroups, before.cgroups)
	}
	// A daemon may finish a sandbox that the dead owner asked for after a first sweep has found nothing.
	var again engine.Swept
	if !eventually(20*time.Second, func() bool {
		again, err = c.suite.engine.Sweep(c.Context())
		return err == nil && again.Sandboxes == 0
	}) {
		c.Errorf("sweep after sweep still finds %v, %v", again.Items, err)
	}
	if c.suite.shared != nil && !c.suite.shared.alive() {
		c.Error("HOLE: the sweep harmed a living sandbox")
	}
	c.remark("%d sandboxes, %d swept", len(told), swept.Sandboxes)
}

func (t ownerTold) traces() traces {
	return traces{word: t.Word, id: t.ID, pids: t.PIDs, namespaces: t.Namespaces, cgroups: t.Cgroups,
		taken: sinceBoot()}
}

// actAsOwner is the other side: this process owns sandboxes and is going to be
// killed. It reports whether that is what the process is for.
func actAsOwner(t *testing.T, open Open) bool {
	stage := os.Getenv(ownerStage)
	if stage == "" {
		return false
	}
	o := &owner{stage: stage, out: json.NewEncoder(os.Stdout)}
	probe, err := os.ReadFile(os.Getenv(ownerProbe))
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{open: open, state: os.Getenv(ownerState), probe: probe, path: os.Getenv(ownerProbe),
		results: map[string]result{}}
	s.options.Rootfs.Kind = engine.RootfsHost
	o.c = &trial{T: t, suite: s}
	if stage == "anywhere" {
		o.ready() // killed from here on
	}
	s.engine = open(t, s.state)
	s.caps = s.engine.Capabilities()
	o.act()
	o.ready()
	time.Sleep(2 * patience)
	return true
}

type owner struct {
	c     *trial
	stage string
	out   *json.Encoder
}

func (o *owner) ready() { o.out.Encode(ownerTold{Ready: true}) }

func (o *owner) act() {
	switch o.stage {
	case "opened":
	case "prepared":
		for range 3 {
			o.prepared()
		}
	case "bound":
		for range 3 {
			b := o.made()
			o.tell(o.c.occupy(b))
		}
	case "running", "stubborn", "flooding", "filling":
		for range 3 {
			t := o.c.occupy(o.made())
			o.tell(t)
			attempt := map[string]string{"running": "hold", "stubborn": "daemon", "flooding": "flood 100000",
				"filling": "disk_fill 40 /work"}[o.stage]
			o.start(t, attempt+" "+t.word)
		}
	case "destroying":
		for range 4 {
			t := o.c.occupy(o.made())
			o.tell(t)
			go t.sandbox.Destroy(context.Background())
		}
	case "anywhere":
		for {
			t := o.c.occupy(o.made())
			o.tell(t)
			t.sandbox.Destroy(context.Background())
		}
	}
}

// start starts a process and reads its output away.
func (o *owner) start(t *tenant, attempt string) {
	s := spec(attempt)
	if strings.HasPrefix(attempt, "flood") || strings.HasPrefix(attempt, "disk_fill") {
		s = spec(strings.TrimSuffix(attempt, " "+t.word))
	}
	o.c.suite.keep = append(o.c.suite.keep, t.start(o.c, s))
}

func (o *owner) made() *box {
	b, err := o.c.suite.make(o.c, boxOptions{})
	if err != nil {
		o.c.Fatal(err)
	}
	return b
}

func (o *owner) prepared() {
	t := engine.Template{ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: o.c.suite.limits(), User: cove.CodeUser},
		Rootfs: o.c.suite.options.Rootfs, Network: cove.NetworkNone}
	sb, err := o.c.suite.engine.Prepare(context.Background(), t)
	if err != nil {
		o.c.Fatal(err)
	}
	o.c.suite.prepared = append(o.c.suite.prepared, sb)
	o.out.Encode(ownerTold{ID: string(t.ID)})
}

func (o *owner) tell(t *tenant) {
	tr := t.traces()
	o.out.Encode(ownerTold{Word: tr.word, ID: tr.id, PIDs: tr.pids, Namespaces: tr.namespaces, Cgroups: tr.cgroups})
}
