package real

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// release makes a release of a version for this architecture, as "make dist" does for all.
func release(t *testing.T, tool, version string, clients ...string) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command(tool, "-out", dir, "-arch", runtime.GOARCH, "-version", version,
		"-clients", strings.Join(clients, ","))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// distTool builds the program that makes releases.
func distTool(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("../../packaging"); err != nil {
		t.Skip("the packaging is not in the VM")
	}
	if testing.Short() {
		t.Skip("builds a release; make test does")
	}
	tool, err := buildDist()
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

var buildDist = sync.OnceValues(func() (string, error) {
	tool := filepath.Join(programs, "dist")
	build := exec.Command("go", "build", "-C", "../../packaging/dist", "-o", tool, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return tool, nil
})

// TestRelease: a release is made of the same bytes each time, has the checksums of all its files and says what its
// programs are made of; install.sh installs what is as it says, and nothing else.
func TestRelease(t *testing.T) {
	t.Parallel()
	tool := distTool(t)
	one, other := release(t, tool, "1.2.3", "darwin", "windows"), release(t, tool, "1.2.3", "windows")
	sums, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	again, aerr := os.ReadFile(filepath.Join(other, "SHA256SUMS"))
	if err != nil || aerr != nil || bytes.Count(again, []byte("\n")) != 6 {
		t.Errorf("%v, %v\n%s\n%s", err, aerr, sums, again)
	}
	for line := range bytes.Lines(again) {
		if !bytes.Contains(sums, line) {
			t.Errorf("made twice, it differs: %s\n%s", line, sums)
		}
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = one
	if out, err := check.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK\n")) != 8 {
		t.Errorf("%v: %s", err, out)
	}
	name := "cove_1.2.3_linux_" + runtime.GOARCH
	var materials struct {
		Components []struct{ Name, Version string }
	}
	data, err := os.ReadFile(filepath.Join(one, name+".cdx.json"))
	if err == nil {
		err = json.Unmarshal(data, &materials)
	}
	found := map[string]string{}
	for _, c := range materials.Components {
		found[c.Name] = c.Version
	}
	if err != nil || found["cove-guest"] != "1.2.3" || found["cove-server"] != "1.2.3" ||
		found["github.com/spf13/cobra"] == "" || found["std"] == "" {
		t.Errorf("%v: %v", err, found)
	}
	mac := "cove_1.2.3_darwin_" + runtime.GOARCH
	out, err := exec.Command("tar", "-tzf", filepath.Join(one, mac+".tar.gz")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), mac+"/bin/cove\n") || strings.Contains(string(out), "cove-guest") {
		t.Errorf("the client for macOS: %v: %s", err, out)
	}
	windows := "cove_1.2.3_windows_" + runtime.GOARCH
	z, err := zip.OpenReader(filepath.Join(one, windows+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if f, err := z.Open(windows + "/bin/cove.exe"); err != nil || len(z.File) != 3 {
		t.Errorf("the client for Windows: %v: %d files", err, len(z.File))
	} else {
		f.Close()
	}

	prefix := filepath.Join(t.TempDir(), "a prefix")
	install := func() (string, error) {
		out, err := exec.Command("sh", filepath.Join(one, "install.sh"), "--prefix", prefix).CombinedOutput()
		return string(out), err
	}
	if out, err := install(); err != nil || !strings.Contains(out, "installed cove 1.2.3 ") {
		t.Errorf("%v: %s", err, out)
	}
	for _, file := range []string{"bin/cove-server", "bin/cove-guest", "bin/git-remote-cove",
		"share/man/man1/cove-run.1.gz",
		"share/bash-completion/completions/cove", "lib/systemd/system/cove.service"} {
		if _, err := os.Stat(filepath.Join(prefix, file)); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(prefix); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(one, name+".tar.gz")
	if err := os.Truncate(archive, 1<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := install(); err == nil || !strings.Contains(out, "is not what SHA256SUMS says; nothing was installed") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(prefix); err == nil {
		t.Error("something was installed of an archive that was changed")
	}
}

// TestPackage is a machine's life with the Debian package, on a copy of this one that is thrown away: installed, used,
// upgraded while a sandbox works, removed and purged.
func TestPackage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it installs a package")
	}
	t.Parallel()
	tool := distTool(t)
	dir := t.TempDir()
	for version, of := range map[string]string{"old": "1.2.3", "new": "1.2.4"} {
		deb := filepath.Join(release(t, tool, of), "cove_"+of+"_linux_"+runtime.GOARCH+".deb")
		if err := os.Rename(deb, filepath.Join(dir, version+".deb")); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"bash", "-euc",
		fmt.Sprintf(copyOfMachine, dir, filepath.Base(filepath.Dir(dir)))+lifeWithPackage)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// copyOfMachine makes a copy of the machine's root, whose changes are in memory, the root of a new mount namespace.
// Its parameters are a directory and a host name.
const copyOfMachine = `cd %s
hostname %s
mkdir upper root
mount -t tmpfs tmpfs upper
mkdir upper/files upper/work
mount -t overlay overlay -o lowerdir=/,upperdir=upper/files,workdir=upper/work root
mount -t proc proc root/proc
for place in sys dev; do mount --rbind /$place root/$place; done
for place in run tmp; do mount -t tmpfs -o mode=1777 tmpfs root/$place; done
rm -rf root/var/lib/cove root/etc/default/cove
mkdir root/var/lib/cove # of a file system whose owners can be mapped, as a machine's is
mount -t tmpfs -o mode=755 tmpfs root/var/lib/cove
cp old.deb new.deb root/root/
cd root
pivot_root . mnt
umount -l mnt
cd /root
`

// lifeWithPackage fails at the first command that does.
const lifeWithPackage = `set -x
says() { wanted=$1; shift; said=$("$@" 2>&1) || true; case $said in *$wanted*) ;; *) echo "$*: $said"; exit 1 ;; esac; }
dpkg -i old.deb
says 'cove 1.2.3 ' cove version
says contained cove run bash -c 'echo contained'
cove new --empty --name kept --no-attach
cove exec kept -- sh -c 'echo work >file'
systemd-analyze verify cove.service
man -w cove-run
bash -c '. /usr/share/bash-completion/completions/cove && complete -p cove'

# What runs goes on during the upgrade, with its server, and is the new version's afterwards.
cove exec kept -- sh -c 'nohup sleep 1000 >/dev/null 2>&1 & echo $! >pid'
dpkg -i new.deb
says 'cove 1.2.4 ' cove version
cove server stop
says work cove exec kept -- cat file
cove exec kept -- sh -c 'kill -0 $(cat pid)'

# The service's server has what it needs with the privileges that its unit leaves it.
cove server stop
unit=/usr/lib/systemd/system/cove.service
caps=$(sed -n 's/^CapabilityBoundingSet=~//p' $unit | tr 'A-Z ' 'a-z\n' | sed 's/^cap_/-/' | paste -sd,)
grep -q '^NoNewPrivileges=yes' $unit
setpriv --no-new-privs --bounding-set="$caps" cove serve 2>serve.log &
until cove server status | grep -q 'process'; do kill -0 $! || { cat serve.log; exit 1; }; done
grep -q 'NoNewPrivs:.*1' /proc/$!/status
says contained cove run bash -c 'echo contained'
says work cove exec kept -- cat file
cove new --empty --name other --no-attach
cove destroy --yes other
kill %1
wait %1

# Settings of the administrator's survive, and so does the work.
echo COVE_LISTEN= >/etc/default/cove
dpkg -r cove
if pgrep -x cove-guest; then exit 1; fi
test ! -e /usr/bin/cove
test ! -e /usr/bin/cove-server
test -e /etc/default/cove
dpkg -i new.deb
says COVE_LISTEN= cat /etc/default/cove
cove start kept
says work cove exec kept -- cat file
dpkg -r cove
says /var/lib/cove dpkg -P cove
test ! -e /etc/default/cove
test -e /var/lib/cove/cove.db
`
