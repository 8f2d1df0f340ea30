//go:build linux

package native

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestPlan: what a guest is told to build, step by step.
func TestPlan(t *testing.T) {
	host := rootfs.Host{
		Dirs: []string{"/usr"}, Links: []rootfs.Link{{Name: "/bin", Target: "usr/bin"}},
		Etc: []string{"/etc/ld.so.cache", "/etc/ssl/certs"},
	}
	limits := cove.Limits{Memory: 256 << 20, CPUs: 1, PIDs: 50, Disk: 100 << 20, Inodes: 20_000, OpenFiles: 1024}
	template := func(kind engine.RootfsKind, u cove.User) engine.Template {
		return engine.Template{Rootfs: engine.Rootfs{Kind: kind, Dir: "/images/x"},
			Shape: cove.Shape{Limits: limits, User: u}}
	}
	watches := []rootfs.Sysctl{{Name: "user/max_inotify_instances", Value: "64"}}
	named := engine.Binding{Hostname: rootfs.Hostname}
	bundle := new(os.File)
	mounts := engine.Binding{
		Attachments: []engine.Attachment{{Target: "/workspace", NoExec: true}, {Target: "/data"},
			{Target: "/b", ReadOnly: true}},
		Files: []engine.File{{Place: bundle, Target: "/etc/bundle"},
			{Place: bundle, Target: "/etc/other", Existing: true}},
	}
	overlay, kept := named, mounts
	overlay.Overlay = &engine.Overlay{Lower: []*os.File{bundle, bundle}, Name: ".npm"}
	kept.Overlay, kept.Changes = overlay.Overlay, bundle
	var sources []engine.Identity
	for i, path := range []string{"/home/me/covehome/workspaces/one", "/srv/a", "/srv/b", "/run/cove/bundle"} {
		sources = append(sources, engine.Identity{Path: path, Dev: 8, Ino: uint64(100 + i)})
	}
	user := cove.User{UID: 999, GID: 998, Groups: "4,101", Name: "postgres", Home: "/var/lib/postgresql", Shell: "/bin/sh"}
	for name, plan := range map[string]any{
		"begin": planBegin(local.Owner{}, "/run/cove/staging", watches, nil),
		"begin-network": planBegin(local.Owner{}, "/run/cove/staging", watches,
			[]guest.Step{{Kind: guest.StepNetlink, Target: guest.NetlinkRoute, Data: []byte("routes")}}),
		"host":          planSetup(template(engine.RootfsHost, cove.CodeUser), host, nil, nil),
		"image":         planSetup(template(engine.RootfsDir, cove.AgentUser), host, nil, nil),
		"image-root":    planSetup(template(engine.RootfsDir, cove.RootUser), host, nil, nil),
		"image-user":    planSetup(template(engine.RootfsDir, user), host, nil, nil),
		"bind-user":     planBind(template(engine.RootfsDir, user), named, nil, nil, false),
		"bind-root":     planBind(template(engine.RootfsDir, cove.RootUser), named, nil, nil, false),
		"bind-shared":   planBind(template(engine.RootfsDir, cove.RootUser), mounts, nil, nil, true),
		"bind":          planBind(template(engine.RootfsHost, cove.CodeUser), named, nil, nil, false),
		"bind-mounts":   planBind(template(engine.RootfsHost, cove.CodeUser), mounts, nil, nil, false),
		"bind-overlay":  planBind(template(engine.RootfsHost, cove.CodeUser), overlay, nil, nil, false),
		"bind-kept":     planBind(template(engine.RootfsHost, cove.AgentUser), kept, nil, nil, false),
		"bind-rootless": planBind(template(engine.RootfsDir, cove.CodeUser), mounts, sources, nil, false),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, plan) })
	}
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "plan-"+name+".json")
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got)+"\n" {
		t.Errorf("the plan differs from %s; if that is meant, run the test with -update and read the difference", file)
	}
}

// TestPlanIsTight: whatever the template, nothing of the host is writable,
// nothing is setuid or a device beyond the few of /dev, and /proc is masked.
func TestPlanIsTight(t *testing.T) {
	host, err := rootfs.ReadHost()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []engine.RootfsKind{engine.RootfsHost, engine.RootfsDir} {
		plan := planSetup(engine.Template{Rootfs: engine.Rootfs{Kind: kind, Dir: "/x"},
			Shape: cove.Shape{Limits: cove.Limits{Disk: 1 << 20, Inodes: 100}}}, host, nil, nil)
		masked := map[string]bool{}
		for _, s := range append(planBegin(local.Owner{}, "/s", nil, nil).Steps, plan.Steps...) {
			device := filepath.Dir(s.Target) == kernelPlace+"/dev"
			switch s.Kind {
			case guest.StepBind:
				if s.Flags&guest.ReadOnly == 0 && !device {
					t.Errorf("%s of the host is writable", s.Source)
				}
				if s.Flags&guest.NoDev == 0 && !device {
					t.Errorf("%s of the host has devices", s.Source)
				}
				fallthrough
			case guest.StepBindInside, guest.StepTmpfs, guest.StepProc, guest.StepDevpts, guest.StepOverlay:
				if s.Flags&guest.NoSuid == 0 {
					t.Errorf("%s %s honours setuid", s.Kind, s.Target)
				}
			case guest.StepMask:
				masked[s.Target] = true
			}
		}
		for _, name := range []string{"/proc/kcore", "/proc/keys", "/proc/kallsyms", "/proc/timer_list"} {
			if !masked[kernelPlace+name] {
				t.Errorf("%s is not masked", name)
			}
		}
	}
}
