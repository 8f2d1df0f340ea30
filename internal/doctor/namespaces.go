package doctor

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkUserNamespace makes a user namespace as the caller, and uses it.
func checkUserNamespace(ctx context.Context, h *host) outcome {
	_, err := h.try(ctx, trial{name: "capability", namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWNS})
	if err != nil {
		return fail(err.Error(), h.userNamespaceFix(err))
	}
	return ok("made one and mounted a tmpfs in it")
}

// ordinaryUser is the id of a user without privileges, for trials by root.
const ordinaryUser = 65534

// checkUnprivileged reports to root whether ordinary users could run Cove.
func checkUnprivileged(ctx context.Context, h *host) outcome {
	if !isRoot() {
		return info("you are one: see above")
	}
	args := append([]string{strconv.Itoa(ordinaryUser)}, h.options.Probe[1:]...)
	if _, err := h.try(ctx, trial{name: "nested", args: append(args, "capability")}); err != nil {
		return outcome{Info, "users other than root cannot use theirs: " + err.Error(), h.userNamespaceFix(err)}
	}
	return ok(fmt.Sprintf("uid %d made one and mounted a tmpfs in it", ordinaryUser))
}

// userNamespaceFix returns the fix for missing user namespaces, most specific first.
func (h *host) userNamespaceFix(err error) string {
	if v, ok := h.number("user.max_user_namespaces"); ok && v == 0 {
		return setting("user.max_user_namespaces", "15000")
	}
	if v, ok := h.number("kernel.unprivileged_userns_clone"); ok && v == 0 { // a patch of Debian and Arch
		return setting("kernel.unprivileged_userns_clone", "1")
	}
	if v, ok := h.number("kernel.apparmor_restrict_unprivileged_userns"); ok && v == 1 { // Ubuntu 23.10
		return apparmorProfile(h.executable())
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return "user.max_user_namespaces or the nesting limit of 32 is used up:\n" +
			setting("user.max_user_namespaces", "15000")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return "this kernel has no user namespaces: use one built with CONFIG_USER_NS, or --engine docker"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "a security module or a container around this program forbids it: allow it there (for a container, " +
			"--security-opt seccomp=unconfined --security-opt apparmor=unconfined), or use --engine docker"
	}
	return ""
}

func (h *host) executable() string {
	if path, err := filepath.EvalSymlinks(h.options.Probe[0]); err == nil {
		return path
	}
	return h.options.Probe[0]
}

// setting returns the commands that change a kernel setting, now and permanently.
func setting(name, value string) string {
	return fmt.Sprintf("echo '%s = %s' | sudo tee -a /etc/sysctl.d/60-cove.conf && sudo sysctl --system", name, value)
}

// apparmorProfile returns a profile that permits one program what Ubuntu denies to all.
func apparmorProfile(executable string) string {
	return fmt.Sprintf(`AppArmor keeps user namespaces from programs without a profile. Give Cove one:
sudo tee /etc/apparmor.d/cove >/dev/null <<'EOF'
abi <abi/4.0>,
include <tunables/global>
profile cove %q flags=(unconfined) {
  userns,
}
EOF
sudo apparmor_parser -r /etc/apparmor.d/cove`, executable)
}

// checkNamespaces makes each other kind of namespace inside a user namespace.
func checkNamespaces(ctx context.Context, h *host) outcome {
	kinds := []struct {
		name string
		flag uintptr
	}{
		{"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"network", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	}
	var made, missing []string
	var last error
	for _, k := range kinds {
		if _, err := h.try(ctx, trial{name: "nothing", namespaces: unix.CLONE_NEWUSER | k.flag}); err != nil {
			missing, last = append(missing, k.name), err
			continue
		}
		made = append(made, k.name)
	}
	if last != nil {
		return fail(fmt.Sprintf("cannot make: %s (%v)", strings.Join(missing, ", "), last),
			h.namespaceFix(kindSettings(missing)))
	}
	return ok(strings.Join(made, ", "))
}

// kindSettings returns the limits on the number of namespaces of some kinds.
func kindSettings(kinds []string) []string {
	names := map[string]string{"mount": "mnt", "network": "net"}
	var settings []string
	for _, k := range kinds {
		settings = append(settings, "user.max_"+cmp.Or(names[k], k)+"_namespaces")
	}
	return settings
}

func (h *host) namespaceFix(settings []string) string {
	var lines []string
	for _, s := range settings {
		if v, ok := h.number(s); ok && v == 0 {
			lines = append(lines, setting(s, "15000"))
		}
	}
	if lines == nil {
		return "see user namespaces above; else this kernel is built without them"
	}
	return strings.Join(lines, "\n")
}

// checkNamespaceCount warns of limits that a busy server would reach.
func checkNamespaceCount(_ context.Context, h *host) outcome {
	const enough = 1000
	lowest, which := -1, ""
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		name := "user.max_" + kind + "_namespaces"
		if v, ok := h.number(name); ok && (lowest < 0 || v < lowest) {
			lowest, which = v, name
		}
	}
	switch {
	case lowest < 0:
		return info("this kernel tells no limits")
	case lowest < enough:
		return warn(fmt.Sprintf("%s = %d", which, lowest), setting(which, "15000"))
	}
	return ok(fmt.Sprintf("at least %d of each kind", lowest))
}

// checkProc mounts /proc in a user namespace, which an outer container prevents by masking parts of its own.
func checkProc(ctx context.Context, h *host) outcome {
	_, err := h.try(ctx, trial{name: "proc", namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID})
	if err != nil {
		return fail(err.Error(), "parts of /proc are hidden by other mounts, as in a container: run Cove outside, or start "+
			"the container with\n"+
			"--security-opt systempaths=unconfined")
	}
	return ok("mounted, and found itself as pid 1")
}

// checkSubordinateIDs maps the caller's subordinate ids with newuidmap.
func checkSubordinateIDs(ctx context.Context, h *host) outcome {
	if isRoot() {
		return info("not needed as root: every sandbox has a range of ids of its own")
	}
	me, err := user.Current()
	if err != nil {
		return unknown("who you are", err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		return unknown("your groups", err)
	}
	kept := keptGroups(groups, os.Getegid(), user.LookupGroupId)
	fix := "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + me.Username
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			return warn(tool+" is not installed, so code has the guest's own id inside"+kept,
				"sudo apt-get install uidmap    # or your distribution's package with newuidmap\n"+fix)
		}
	}
	first, err := subordinate(filepath.Join(h.root, "/etc/subuid"), me)
	group, groupErr := subordinate(filepath.Join(h.root, "/etc/subgid"), me)
	if err := cmp.Or(err, groupErr); err != nil {
		return warn(err.Error()+kept, fix)
	}
	if err := mapIDs(ctx, h, first, group); err != nil {
		return warn(err.Error(),
			"check that newuidmap and newgidmap are setuid root, and that their file system is not mounted nosuid")
	}
	return ok(fmt.Sprintf("mapped 65536 ids from %d", first))
}

// keptGroups says which supplementary groups code keeps, because no process may drop any in a user namespace that was
// made without a privilege.
func keptGroups(groups []int, primary int, look func(id string) (*user.Group, error)) string {
	var names []string
	for _, id := range groups {
		if id == primary {
			continue
		}
		name := strconv.Itoa(id)
		if g, err := look(name); err == nil {
			name = g.Name
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	return ", and keeps your groups, with what they may read of the image host: " + strings.Join(names, ", ")
}

func mapIDs(ctx context.Context, h *host, uid, gid int) error {
	pid, end, err := h.waiting(ctx, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL})
	if err != nil {
		return err
	}
	defer end()
	for tool, first := range map[string]int{"newuidmap": uid, "newgidmap": gid} {
		if out, err := exec.CommandContext(ctx, tool, pid, "0", strconv.Itoa(first), "65536").CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// subordinate returns a user's range of at least 65536 ids (subuid(5)).
func subordinate(file string, u *user.User) (first int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.Split(lines.Text(), ":")
		if len(parts) != 3 || parts[0] != u.Username && parts[0] != u.Uid {
			continue
		}
		first, err1 := strconv.Atoi(parts[1])
		count, err2 := strconv.Atoi(parts[2])
		if err1 == nil && err2 == nil && count >= 65536 {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no range of 65536 ids for %s in %s", u.Username, file)
}
