package real

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
)

// sshd serves one machine's users at a free port of the loopback, to those who have the key in its ~/.ssh, and
// returns the port. config is added to that of the server.
func (m *machine) sshd(config string) (port string) {
	m.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	port = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	dir := filepath.Join(m.home, "sshd")
	m.sh("/", `set -e
		mkdir -p -m 700 ~/.ssh `+dir+`
		mkdir -p -m 755 /run/sshd
		ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
		cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
		ssh-keygen -q -t ed25519 -N '' -f `+dir+`/key
		printf '[127.0.0.1]:%s %s\n' `+port+` "$(cut -d' ' -f1,2 `+dir+`/key.pub)" >~/.ssh/known_hosts
		cat >`+dir+`/config <<'END'
Port `+port+`
ListenAddress 127.0.0.1
HostKey `+dir+`/key
AuthorizedKeysFile `+m.home+`/.ssh/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
StrictModes no
SetEnv PATH=`+programs+`:/usr/bin:/bin
`+config+`
END
		cat >~/.ssh/config <<'END'
Host *
	IdentityFile `+m.home+`/.ssh/id_ed25519
	UserKnownHostsFile `+m.home+`/.ssh/known_hosts
END`)
	args := append(m.enter[1:len(m.enter):len(m.enter)], "/usr/sbin/sshd", "-D", "-e", "-f", dir+"/config")
	server := exec.Command(m.enter[0], args...)
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if server.Stderr, err = os.Create(filepath.Join(m.t.TempDir(), "log")); err != nil {
		m.t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if log, _ := os.ReadFile(server.Stderr.(*os.File).Name()); m.t.Failed() {
			m.t.Logf("sshd:\n%s", log)
		}
	})
	await.That(m.t, "sshd answers", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		defer conn.Close()
		hello := make([]byte, 4)
		_, err = io.ReadFull(conn, hello)
		return err == nil && string(hello) == "SSH-"
	})
	return port
}

// TestSSH: --server ssh://HOST uses the server of another machine, and starts it there, with a real ssh on both ends.
func TestSSH(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: sshd in a mount namespace of its own")
	}
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		t.Skip("sshd is missing: apt-get install openssh-server")
	}
	t.Parallel()
	there, here := asRoot(t), asRoot(t)
	port := there.sshd("")
	// The user of this machine has the keys of the other one.
	here.sh("/", "mkdir -m 700 ~/.ssh")
	for _, name := range []string{"id_ed25519", "known_hosts"} {
		here.sh("/", "umask 077; cat >~/.ssh/"+name+" <<'END'\n"+there.sh("/", "cat ~/.ssh/"+name)+"END\n")
	}
	far := here.with("COVE_SERVER=ssh://root@127.0.0.1:" + port)

	// One is started, and everything goes over the connection: streams, input, exit codes, sandboxes, terminals.
	if got := far.cove("server", "status"); !strings.Contains(got, "ssh://root@127.0.0.1:"+port) {
		t.Errorf("status: %s", got)
	}
	if got := far.cove("run", "sh", "-c", "echo out; echo more"); got != "out\nmore\n" {
		t.Errorf("run: %q", got)
	}
	if got := far.sh("/", "seq 20000 | cove run sh -c 'sort -n | tail -n 1'"); got != "20000\n" {
		t.Errorf("standard input: %q", got)
	}
	far.says(7, []string{"run", "sh", "-c", "exit 7"})
	far.cove("new", "--empty", "--name", "otter", "--no-attach")
	if got := far.cove("exec", "otter", "--", "sh", "-c", "echo two >a; cat a"); got != "two\n" {
		t.Errorf("exec: %q", got)
	}
	tty := far.sh("/", `printf 'echo $((6*7))x; exit\r' | script -qec 'cove attach otter' /dev/null`)
	if !strings.Contains(tty, "42x") {
		t.Errorf("terminal: %q", tty)
	}
	// The sandbox is there, and neither a server nor records are here.
	if got := there.cove("list", "-q"); got != "otter\n" {
		t.Errorf("there: %q", got)
	}
	if got := here.sh("/", "find /var/lib/cove /run/cove -name cove.db -o -type s 2>/dev/null || true"); got != "" {
		t.Errorf("here: %s", got)
	}

	// Ctrl-C ends the execution there, and its end is known here.
	long := []string{"cove", "run", "--timeout", "5m", "sh", "-c", "echo on; sleep 600"}
	if r := far.signaled(syscall.SIGINT, long...); r.out != "on\n" || r.errs != "cove: stopped: killed\n" {
		t.Errorf("interrupted: %+v", r)
	}
	await.That(t, "nothing runs there", func() bool { return there.cove("ps", "-q") == "" })
	// So does a client that is killed.
	far.signaled(syscall.SIGKILL, long...)
	await.That(t, "nothing runs there", func() bool { return there.cove("ps", "-q") == "" })

	// What is wrong is said in ssh's words, with what to try.
	for _, c := range []struct {
		address string
		texts   []string
	}{
		{"ssh://root@127.0.0.1:1", []string{"127.0.0.1", "Connection refused", "ssh -p 1 -l root 127.0.0.1 true"}},
		{"ssh://nobody@127.0.0.1:" + port, []string{"Permission denied"}},
	} {
		here.says(123, []string{"list", "--server", c.address}, c.texts...)
	}
	here.says(120, []string{"list", "--server", "ssh://-oProxyCommand=id"}, "is not an address")
}
