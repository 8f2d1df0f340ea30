package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
)

// part is a group of acts.
type part struct {
	title string
	acts  []act
}

// act is one command line of Cove's and what has to come of it.
type act struct {
	title string
	args  []string
	stdin string
	// judge says what is wrong, or nothing.
	judge func(result) string
}

// program is the whole demonstration.
func program(t *target, s *service, p project) []part {
	return []part{
		{"Ordinary programs run", []act{
			{"Python", run("python", "import os, sys\nprint('Python', sys.version.split()[0], 'as uid', os.getuid())"), "",
				prints("Python 3")},
			{"Node, with an argument", append(run("node", "console.log('Node', process.version, 'says', process.argv[2])"), "--",
				"hello"), "", prints("says hello")},
			{"Bash, with piped input", run("bash", "while read -r word; do echo ${word^^}; done"), "one\ntwo\n", prints("TWO")},
			{"A program's own exit code", run("bash", "echo failing >&2; exit 3"), "", exits(3)},
		}},
		{"They see nothing of the host", []act{
			{"Files",
				run("bash",
					"for f in /etc/shadow /root/. /home/*/. /var/lib/.; do\n  if head -c1 $f/* $f >/dev/null 2>&1\n  then echo $f "+
						"is OPEN; else echo $f is closed; fi\ndone\ntouch /usr/x || true"),
				"", all(prints("/etc/shadow is closed"), lacks("OPEN"))},
			{"Processes", run("bash", "echo /proc/[0-9]* | wc -w; kill -9 -1"), "", sees(12)},
			{"Privileges", run("python", privileges), "", all(prints("mount: "), lacks("ALLOWED"))},
		}},
		{"Hostile programs are stopped", []act{
			{"Fork bomb", append(run("python", "import os\nwhile True:\n    os.fork()"), "--timeout", "5s"), "",
				stopped("too many processes", "out of time")},
			{"Memory hog", run("python", "hog = []\nwhile True:\n    hog.append(bytearray(16 << 20))"), "",
				stopped("out of memory")},
			{"Endless loop", append(run("node", "for (;;) {}"), "--timeout", "2s"), "", all(stopped("out of time"), exits(124))},
			{"Disk filler", append(run("bash", "while :; do head -c 1M /dev/zero >>/tmp/big || exit; done"), "--disk", "32M"),
				"", stopped("disk full")},
			{"Output flood", append(run("bash", "yes flood"), "--timeout", "5s"), "", stopped("too much output", "out of time")},
			{"A way out, to this machine", run("python", t.attempt()), "",
				all(prints("host: "), lacks("CONNECTED"), t.untouched)},
			{"A way out, to the world", run("python", away), "", all(prints("interfaces: ['lo']"), lacks("CONNECTED"))},
		}},
		{"Others reach what you say, and never hold a key", []act{
			{"A service, by a key of which it has a placeholder", s.call(), "",
				all(prints("welcome, you sent ****"), prints("my key is placeholder-"), lacks(s.key))},
			{"A place that nobody allowed", append(run("python", elsewhere), "--allow", "somewhere.example"), "",
				prints("403 blocked: no rule allows elsewhere.example")},
		}},
		{"Coding agents work without a key, and you take over what they did", p.tasks()},
	}
}

func run(language, code string) []string { return []string{"run", language, "-c", code} }

// privileges tries what only root may.
const privileges = `import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, *args in [("mount", b"x", b"/mnt", b"tmpfs", 0, None), ("unshare", 1 << 28), ("setuid", 0), ("chroot", b"/")]:
    failed = getattr(libc, name)(*args)
    print(name + ":", os.strerror(ctypes.get_errno()) if failed else "ALLOWED")`

// away tries an address that nobody has (RFC 5737) and a name that nobody has
// (RFC 6761): where there is no route and no resolver, both fail at once.
const away = `import socket
print("interfaces:", [name for _, name in socket.if_nameindex()])
for host in "192.0.2.1", "cove.example":
    try:
        socket.create_connection((host, 80), 5)
        print(host + ": CONNECTED")
    except OSError as e:
        print(host + ":", e.strerror)`

// target is a server of the demo's own on this machine, which programs inside must not reach.
type target struct {
	l       net.Listener
	reached atomic.Int64
}

func newTarget() (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{l: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.reached.Add(1)
			c.Write([]byte("hello\n"))
			c.Close()
		}
	}()
	// The positive control: from outside it can be reached.
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("the demo's own server cannot be reached: %w", err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		l.Close()
		return nil, fmt.Errorf("the demo's own server does not answer: %w", err)
	}
	return t, nil
}

func (t *target) close() { t.l.Close() }

func (t *target) attempt() string {
	_, port, _ := net.SplitHostPort(t.l.Addr().String())
	return "import socket\ntry:\n    socket.create_connection((\"127.0.0.1\", " +
		port + "), 5)\n    print(\"host: CONNECTED\")\nexcept OSError as e:\n    print(\"host:\", e.strerror)"
}

func (t *target) untouched(result) string {
	if n := t.reached.Load(); n != 1 {
		return fmt.Sprintf("the server on this machine was reached %d times from inside", n-1)
	}
	return ""
}

// What judges an act.

func all(judges ...func(result) string) func(result) string {
	return func(r result) string {
		for _, j := range judges {
			if why := j(r); why != "" {
				return why
			}
		}
		return ""
	}
}

func prints(text string) func(result) string {
	return func(r result) string {
		if r.code != 0 || !strings.Contains(r.stdout, text) {
			return fmt.Sprintf("it should print %q and exit with 0", text)
		}
		return ""
	}
}

func lacks(text string) func(result) string {
	return func(r result) string {
		if strings.Contains(r.stdout, text) {
			return fmt.Sprintf("it should not print %q", text)
		}
		return ""
	}
}

func exits(code int) func(result) string {
	return func(r result) string {
		if r.code != code {
			return fmt.Sprintf("it should exit with %d", code)
		}
		return ""
	}
}

// sees bounds how many processes a program counts, and lets it end by its own signal.
func sees(most int) func(result) string {
	return func(r result) string {
		var n int
		if _, err := fmt.Sscan(r.stdout, &n); err != nil || n < 1 || n > most {
			return fmt.Sprintf("it should see between 1 and %d processes", most)
		}
		return ""
	}
}

// stopped wants Cove's own word for what ended the program.
func stopped(reasons ...string) func(result) string {
	return func(r result) string {
		v := r.verdict()
		if !slices.ContainsFunc(reasons, func(reason string) bool { return strings.HasPrefix(v, "stopped: "+reason) }) {
			return fmt.Sprintf("it should have been stopped: %s", strings.Join(reasons, " or "))
		}
		return ""
	}
}
