//go:build linux

package real

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	labs "github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/await"
)

// reader is the shell into which a test types what a document shows.
const reader = "/home/ada"

// document is what a document needs beside a machine and itself.
type document struct {
	setup  string // is a script for what the document takes for granted
	agents bool   // Claude Code and Codex are installed
	// words are what the reader puts in the place of words of command lines.
	words map[string]string
	lines []how
}

// how says of the command lines that begin with some text what is not so with others: a line is typed at the reader's
// shell, ends, and exits with 0.
type how struct {
	line   string
	why    string   // why it is not run here; the rest is empty then
	before string   // a script that runs before it
	inside string   // the sandbox in which it is typed
	keys   []string // what is typed at its terminal: a text that is waited for, then keys, and so on
	stays  string   // it goes on until the document's end, or the next line of "stays", once it has printed this
	prints string   // it prints this, where the document shows no output
	code   int      // of its exit
}

// shown is a command line of a document.
type shown struct {
	number  int // of its line
	text    string
	console bool // its output is shown
	output  string
}

// readDocument takes a document apart: each line of an indented block is a command line, and in fenced blocks of the
// kind "console" those after a dollar, with their output below; other fenced blocks have none. A block that begins with
// a comment that is a file's name shows that file.
func readDocument(text string) (lines []shown, files map[string]string) {
	files = map[string]string{}
	fence, file, number, goesOn := "", "", 0, false
	for line := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```") && fence == "":
			fence, file = trimmed, "?"
		case strings.HasPrefix(trimmed, "```"):
			fence = ""
		case fence == "" && strings.HasPrefix(line, "    ") && trimmed != "", fence == "```console" && (strings.HasPrefix(
			line, "$ ") || goesOn):
			console := fence != ""
			part := strings.TrimPrefix(trimmed, "$ ")
			if goesOn {
				lines[len(lines)-1].text += "\n" + part
			} else {
				lines = append(lines, shown{number: number, text: part, console: console})
			}
			goesOn = strings.HasSuffix(part, "\\")
		case fence == "```console":
			lines[len(lines)-1].output += line
		case file == "?":
			file = ""
			if name := strings.TrimPrefix(trimmed, "# "); name != trimmed && filepath.Ext(name) != "" {
				file = name
			}
		}
		if fence != "" && file != "" && file != "?" {
			files[file] += line
		}
	}
	return lines, files
}

// TestDocuments: every command line that README and the documents show is executed as it is written, in order, on a
// machine with nothing set, and prints what is shown; or it stands in the table with the reason why not.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes; make test runs it")
	}
	if _, err := os.Stat("../../README.md"); err != nil {
		t.Skip("the documents are not in the VM")
	}
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", programs+"/", "./test/modelserver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w := newWorld(t)
	tables := table()
	count := 0
	for n, file := range append([]string{"../../README.md"}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if file != "../../README.md" {
			name = "docs/" + name
		}
		d := cmp.Or(tables[name], &document{})
		delete(tables, name)
		lines, shows := readDocument(string(text))
		if count += len(lines); len(lines) == 0 && len(d.lines) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			t.Parallel()
			d.check(t, lines)
			runs := slices.ContainsFunc(lines, func(l shown) bool { return d.how(l).why == "" })
			if !t.Failed() && runs {
				(&session{machine: w.machine(t, n+1), document: d}).run(lines, shows)
			}
		})
	}
	t.Run("hour", func(t *testing.T) {
		t.Parallel()
		testHour(t, w, len(files)+2)
	})
	for name := range tables {
		t.Errorf("the table has %s, which is no document", name)
	}
	if count < 100 {
		t.Errorf("only %d command lines were found", count)
	}
}

// how is what the table has of a line.
func (d *document) how(l shown) how {
	for _, h := range d.lines {
		if strings.HasPrefix(l.text, h.line) {
			return h
		}
	}
	return how{}
}

// check fails where the table says something of a line that is not there.
func (d *document) check(t *testing.T, lines []shown) {
	for _, h := range d.lines {
		if !slices.ContainsFunc(lines, func(l shown) bool { return d.how(l).line == h.line }) {
			t.Errorf("the table speaks of the line %q, which is not there any more", h.line)
		}
	}
}

// session is a reader's shell.
type session struct {
	*machine
	*document
	log   string // where output goes, a file for each line
	going []*going
}

// going is a command that goes on.
type going struct {
	command *exec.Cmd
	output  string // a file
	done    chan struct{}
}

func (s *session) run(lines []shown, shows map[string]string) {
	s.log = s.t.TempDir()
	if s.agents {
		s.installAgents()
	}
	for name, text := range shows {
		s.write(name, text)
	}
	if s.setup != "" {
		s.sh(reader, "set -e\n"+s.setup)
	}
	defer s.end()
	for n, l := range lines {
		s.line(n, l)
	}
}

// installAgents shows this machine the agents that were installed for the tests.
func (s *session) installAgents() {
	from := os.Getenv("COVE_TEST_AGENTS")
	if from == "" {
		s.t.Skip("needs the agents, which are there where they could be installed: COVE_TEST_AGENTS is set")
	}
	// Outside, where it is one file system, their large files need no copy.
	const copies = `mkdir -p -m 700 cove && mkdir cove/agents && for a in claude codex; do
		cp -a --link "$1/$a" cove/agents 2>/dev/null || cp -a "$1/$a" cove/agents || exit; done`
	c := exec.Command("sh", "-c", copies, "sh", from)
	c.Dir = filepath.Join(s.dir, "lib")
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

func (s *session) write(name, text string) {
	s.t.Helper()
	c := s.command(context.Background(), reader, "sh", "-c", `cat >"$1"`, "sh", name)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// shell goes on where the line before has left it. It does not end before the command that it waits for.
const shell = `trap : TERM
if [ -e /run/session ]; then . /run/session; fi
eval "$1"
code=$?
{ export -p; printf 'cd %q\n' "$PWD"; } >/run/session
exit $code`

func (s *session) line(n int, l shown) {
	h := s.how(l)
	if h.why != "" {
		return
	}
	text := l.text
	for word, put := range s.words {
		text = strings.ReplaceAll(text, word, put)
	}
	if h.before != "" {
		s.sh(reader, h.before)
	}
	if h.inside != "" {
		text = "cove exec " + h.inside + " -- bash -c '" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	if h.stays != "" {
		s.end()
	}
	of := filepath.Join(s.log, fmt.Sprint(n))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	if h.stays != "" {
		cancel()
		ctx = context.Background()
	}
	defer cancel()
	c := s.command(ctx, reader, "bash", "-c", shell, "bash", text)
	file, err := os.Create(of)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	c.Stdout, c.Stderr = file, file
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read := func() string {
		text, err := os.ReadFile(of)
		if err != nil {
			s.t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\r", "")
	}
	switch {
	case h.stays != "":
		if err := c.Start(); err != nil {
			s.t.Fatal(err)
		}
		g := &going{c, of, make(chan struct{})}
		go func() { defer close(g.done); c.Wait() }()
		s.going = append(s.going, g)
		await.That(s.t, fmt.Sprintf("%q prints %q", l.text, h.stays), func() bool {
			select {
			case <-g.done:
				if !strings.HasSuffix(l.text, "&") {
					s.t.Fatalf("%d: %s\nhas ended: %s", l.number, l.text, read())
				}
			default:
			}
			return strings.Contains(read(), h.stays)
		})
		return
	case h.keys != nil:
		err = s.typed(c, file, h.keys, read)
	default:
		err = c.Run()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Errorf("%d: %s: %v", l.number, l.text, err)
	}
	got := read()
	if code := c.ProcessState.ExitCode(); code != h.code {
		s.t.Errorf("%d: $ %s\nexits with %d, want %d\n%s", l.number, l.text, code, h.code, got)
	}
	if !strings.Contains(got, h.prints) {
		s.t.Errorf("%d: $ %s\ndoes not print %q:\n%s", l.number, l.text, h.prints, got)
	}
	if l.console && h.keys == nil && steady(got) != steady(l.output) {
		s.t.Errorf("%d: $ %s\nprints\n%s\nwhere the document shows\n%s", l.number, l.text, steady(got), steady(l.output))
	}
	if testing.Verbose() {
		s.t.Logf("$ %s\n%s", text, got)
	}
}

// end ends what goes on, as ctrl-c does.
func (s *session) end() {
	for _, g := range s.going {
		g.command.Process.Signal(os.Interrupt)
		// What a shell has put into the background hears no ctrl-c.
		if err := syscall.Kill(-g.command.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			s.t.Error(err)
		}
		<-g.done
	}
	s.going = nil
}

// typed runs a command at a terminal, and types keys once it has printed what they are for.
func (s *session) typed(c *exec.Cmd, file *os.File, keys []string, read func() string) error {
	master, terminal, err := openTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = c.Start()
	terminal.Close()
	if err != nil {
		return err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			file.Write(b[:n])
			if err != nil {
				return // EIO: no process has the terminal any more
			}
		}
	}()
	seen := 0
	for i := 0; i+1 < len(keys); i += 2 {
		await.That(s.t, fmt.Sprintf("a terminal shows %q", keys[i]), func() bool {
			select {
			case <-copied:
				s.t.Errorf("it has ended: %s", read())
				return true
			default:
			}
			at := strings.Index(read()[seen:], keys[i])
			if at >= 0 {
				seen += at + len(keys[i])
			}
			return at >= 0
		})
		master.WriteString(keys[i+1])
	}
	err = c.Wait()
	<-copied
	return err
}

func openTerminal() (master, terminal *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
	}
	return master, terminal, err
}

// What differs each time, and what stands for it in a comparison. Documents show what was printed once, or zeros.
var wildcards = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\([0-9.]+ (µs|ms|s)\)`), "(TIME)"},
	{regexp.MustCompile(`(?m)(  )(now|[0-9]+ s ago)$`), "${1}AGO"},
	{regexp.MustCompile(`\b[a-z]{2}_[0-9a-hjkmnp-tv-z]{26}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{7,40}\b`), "COMMIT"},
	{regexp.MustCompile(` {2,}`), "  "}, // the gaps of a table, as wide as what is in it
	{regexp.MustCompile(`(?m)\s+$`), ""},
}

// steady is an output without what differs each time.
func steady(text string) string {
	for _, w := range wildcards {
		text = w.what.ReplaceAllString(text, w.as)
	}
	return text
}

// world is the internet of the documents, by real parts.
type world struct {
	*labs.Internet
	dir string
}

// machine is one with nothing set, whose cable leads to this world.
func (w *world) machine(t *testing.T, number int) *machine {
	t.Helper()
	enter, dir := newNamespace(t, "--net")
	var process int
	if _, err := fmt.Sscan(enter[2], &process); err != nil {
		t.Fatal(err)
	}
	if err := labs.Join(number, process); err != nil {
		t.Fatal(err)
	}
	m := asRootIn(t, enter, dir)
	m.sh("/", fmt.Sprintf(`set -e
		mkdir -p %[1]s
		mount --bind %[2]s/resolv.conf /etc/resolv.conf
		mount --bind %[2]s/authorities.pem /etc/ssl/certs/ca-certificates.crt`, reader, w.dir))
	return m
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Internet: labs.OpenBeside(t), dir: t.TempDir()}
	authorities, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"resolv.conf":     fmt.Appendf(nil, "nameserver %s\n", labs.Resolver),
		"authorities.pem": bytes.Join([][]byte{authorities, w.Authority()}, []byte("\n")),
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.populate(t)
	return w
}
