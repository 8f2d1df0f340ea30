package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

const cgroupRoot = "/sys/fs/cgroup"

// account is whom a step runs as.
type account struct {
	name protocol.Account
	uid  int
	user string
	home string
	// session is the control group of the step, under cgroupRoot; the part of
	// it that is called delegated belongs to uid.
	session, delegated string
	// controllers are what it is given.
	controllers string
	// oomScore is the least oom_score_adj that a process without privileges
	// can give itself: systemd starts user services and sessions with more.
	oomScore int
}

func accounts() []account {
	const all, noCPU = "+cpu +memory +pids", "+memory +pids"
	slice := func(uid string) string { return "user.slice/user-" + uid + ".slice/" }
	// systemd is the delegated part of a user's sessions.
	systemd := func(uid string) string { return slice(uid) + "user@" + uid + ".service" }
	const scope = "/app.slice/run-test.scope"
	return []account{
		{protocol.Root, 0, "root", "/root", slice("0") + "session-1.scope", "", all, 0},
		{protocol.Delegated, 1000, "user", "/home/user", systemd("1000") + scope, systemd("1000"), all, 200},
		{protocol.Undelegated, 1000, "user", "/home/user", slice("1000") + "session-2.scope", "", all, 0},
		{protocol.Service, 1000, "user", "/home/user", "system.slice/test.service", "system.slice/test.service", all, 0},
		{protocol.NoRange, 1001, "norange", "/home/norange", systemd("1001") + scope, systemd("1001"), all, 200},
		{protocol.Partial, 1002, "partial", "/home/partial", systemd("1002") + scope, systemd("1002"), noCPU, 200},
	}
}

func findAccount(name protocol.Account) (account, error) {
	for _, a := range accounts() {
		if a.name == name {
			return a, nil
		}
	}
	return account{}, fmt.Errorf("no account %q", name)
}

// gid is another number than uid, except for root: scripts/vm-image.sh.
func (a account) gid() int {
	if a.uid == 0 {
		return 0
	}
	return a.uid + 100
}

func (a account) runtimeDir() string {
	return "/run/user/" + strconv.Itoa(a.uid)
}

func (a account) environment() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + a.home, "USER=" + a.user, "LOGNAME=" + a.user, "SHELL=/bin/bash",
		"LANG=C.UTF-8",
		// For tests: where they are, and programs they need not build.
		"COVE_TEST_IN_VM=" + string(a.name), "COVE_TEST_BIN=/cove/bin",
	}
	if a.uid != 0 {
		env = append(env, "XDG_RUNTIME_DIR="+a.runtimeDir())
	}
	return env
}

// layOutCgroups makes the slices, services and scopes of accounts, with the controllers systemd gives each.
func layOutCgroups() error {
	const all, delegable = "+cpuset +cpu +io +memory +pids", "+cpu +memory +pids"
	if err := enableControllers("", all); err != nil {
		return err
	}
	for _, dir := range []string{"init.scope", "system.slice", "user.slice"} {
		if err := makeCgroup(dir); err != nil {
			return err
		}
	}
	// A control group that hands controllers on holds no processes.
	if err := os.WriteFile(cgroupRoot+"/init.scope/cgroup.procs", []byte("1"), 0); err != nil {
		return err
	}
	for _, slice := range []string{"system.slice", "user.slice"} {
		if err := enableControllers(slice, delegable); err != nil {
			return err
		}
	}
	for _, a := range accounts() {
		if err := a.layOut(); err != nil {
			return err
		}
	}
	return nil
}

func (a account) layOut() error {
	path := ""
	for name := range strings.SplitSeq(a.session, "/") {
		path = filepath.Join(path, name)
		if err := makeCgroup(path); err != nil {
			return err
		}
		if a.delegated != "" && strings.HasPrefix(path, a.delegated) {
			if err := delegate(path, a.uid, a.gid()); err != nil {
				return err
			}
		}
		if path != a.session && strings.Contains(path, "/") { // the slices of all have theirs
			if err := enableControllers(path, a.controllers); err != nil {
				return err
			}
		}
	}
	return nil
}

// emptySession takes back controllers that the step before has enabled in the
// session's group: one that hands them on takes no process.
func (a account) emptySession() error {
	have, err := os.ReadFile(filepath.Join(cgroupRoot, a.session, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(have)) {
		if err := enableControllers(a.session, "-"+name); err != nil {
			return err
		}
	}
	return nil
}

// delegate gives a control group to somebody: the directory, and the files that the kernel names as safe to give.
func delegate(path string, uid, gid int) error {
	files, err := os.ReadFile("/sys/kernel/cgroup/delegate")
	if err != nil {
		return err
	}
	dir := filepath.Join(cgroupRoot, path)
	for _, name := range append(strings.Fields(string(files)), ".") {
		if err := os.Chown(filepath.Join(dir, name), uid, gid); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func makeCgroup(path string) error {
	return os.MkdirAll(filepath.Join(cgroupRoot, path), 0o755)
}

func enableControllers(path, controllers string) error {
	err := os.WriteFile(filepath.Join(cgroupRoot, path, "cgroup.subtree_control"), []byte(controllers), 0)
	if err != nil {
		return fmt.Errorf("enable %s: %w", controllers, err)
	}
	return nil
}
