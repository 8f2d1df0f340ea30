package fake

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The shell of sandboxes in memory knows simple commands, joined by ; newline & && and ||, with quotes, variables, $1
// "$@" $$ $?, redirections to files and >&2, and the builtins : cd exit export kill read. Anything else is an error,
// not a guess.

// sh is "sh -c SCRIPT [NAME [ARG]...]" or "sh FILE [ARG]...".
func sh(p *Process) int {
	args := p.Args[1:]
	switch {
	case len(args) >= 2 && args[0] == "-c":
		return runScript(p, args[1], append([]string{"sh"}, args[min(3, len(args)):]...))
	case len(args) >= 1:
		script, err := p.ReadFile(args[0])
		if err != nil {
			p.fail(fmt.Errorf("%s: %s", args[0], describe(err)))
			return 127
		}
		return runScript(p, string(script), args)
	}
	script, err := io.ReadAll(p.Stdin)
	if err != nil {
		return p.fail(err)
	}
	return runScript(p, string(script), []string{"sh"})
}

// errExit is the shell's exit builtin.
var errExit = errors.New("exit")

// interpreter is one running script.
type interpreter struct {
	p      *Process
	params []string // $0 $1 …
	vars   map[string]string
	status int
}

func runScript(p *Process, script string, params []string) int {
	in := &interpreter{p: p, params: params, vars: map[string]string{}}
	lex := &lexer{src: script}
	for p.Context.Err() == nil {
		cmd, op, err := lex.command()
		if err != nil {
			fmt.Fprintf(p.Stderr, "sh: %v\n", err)
			return 2
		}
		if len(cmd) > 0 {
			if err := in.simple(cmd, op == "&"); err != nil {
				return in.status
			}
		}
		for op == "&&" && in.status != 0 || op == "||" && in.status == 0 {
			if _, op, err = lex.command(); err != nil {
				return 2
			}
		}
		if op == "" {
			return in.status
		}
	}
	return 0
}

// word is one word of a command before expansion, or a redirection's sign.
type word struct {
	op    string // "", ">", ">>", "<", ">&2", "2>&1", "2>"
	parts []part
}

type part struct {
	text   string
	expand bool // unquoted or in double quotes
	quoted bool
}

type lexer struct {
	src string
	pos int
}

// command reads one simple command and the operator that ends it; "" is the end of the script.
func (l *lexer) command() (words []word, op string, err error) {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case c == '#':
			if end := strings.IndexByte(rest, '\n'); end >= 0 {
				l.pos += end
			} else {
				l.pos = len(l.src)
			}
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
			l.pos += 2
			return words, rest[:2], nil
		case c == ';' || c == '\n' || c == '&':
			l.pos++
			return words, rest[:1], nil
		case strings.ContainsRune("|(){}`", rune(c)):
			return nil, "", fmt.Errorf("%q is not known to the shell of sandboxes in memory", c)
		default:
			w, err := l.word()
			if err != nil {
				return nil, "", err
			}
			words = append(words, w)
		}
	}
	return words, "", nil
}

func (l *lexer) word() (word, error) {
	for _, op := range []string{"2>&1", ">&2", "2>", ">>", ">", "<"} {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.pos += len(op)
			return word{op: op}, nil
		}
	}
	var w word
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case strings.IndexByte(" \t\r\n;&|<>()", c) >= 0:
			return w, nil
		case c == '\'' || c == '"':
			end := strings.IndexByte(l.src[l.pos+1:], c)
			if end < 0 {
				return w, errors.New("unterminated quote")
			}
			w.parts = append(w.parts, part{l.src[l.pos+1 : l.pos+1+end], c == '"', true})
			l.pos += end + 2
		default:
			n := strings.IndexAny(l.src[l.pos:], " \t\r\n;&|<>()'\"")
			if n < 0 {
				n = len(l.src) - l.pos
			}
			w.parts = append(w.parts, part{l.src[l.pos : l.pos+n], true, false})
			l.pos += n
		}
	}
	return w, nil
}

// expand turns a word into arguments.
func (in *interpreter) expand(w word) []string {
	if len(w.parts) == 1 && w.parts[0].quoted && w.parts[0].expand && w.parts[0].text == "$@" {
		return slices.Clone(in.params[1:])
	}
	var s strings.Builder
	quoted := false
	for _, p := range w.parts {
		quoted = quoted || p.quoted
		if p.expand {
			s.WriteString(in.variables(p.text))
		} else {
			s.WriteString(p.text)
		}
	}
	if s.Len() == 0 && !quoted {
		return nil
	}
	return []string{s.String()}
}

func (in *interpreter) variables(s string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		n := 0
		for n < len(after) && (after[n] == '_' || after[n] >= '0' && after[n] <= '9' || after[n]|0x20 >= 'a' &&
			after[n]|0x20 <= 'z') {
			n++
		}
		switch {
		case n > 0:
			out.WriteString(in.variable(after[:n]))
		case strings.HasPrefix(after, "$"):
			n = 1
			out.WriteString(strconv.Itoa(in.p.pid))
		case strings.HasPrefix(after, "?"):
			n = 1
			out.WriteString(strconv.Itoa(in.status))
		case strings.HasPrefix(after, "#"):
			n = 1
			out.WriteString(strconv.Itoa(len(in.params) - 1))
		default:
			out.WriteByte('$')
		}
		s = after[n:]
	}
}

func (in *interpreter) variable(name string) string {
	if i, err := strconv.Atoi(name); err == nil {
		if i < len(in.params) {
			return in.params[i]
		}
		return ""
	}
	if v, ok := in.vars[name]; ok {
		return v
	}
	return in.p.Getenv(name)
}

// simple runs one simple command; only exit is an error.
func (in *interpreter) simple(words []word, background bool) error {
	if name, value, ok := assignment(words); ok {
		in.vars[name] = strings.Join(in.expand(value), "")
		in.status = 0
		return nil
	}
	child := in.p.fork()
	args, files, err := in.redirect(child, words)
	if err != nil {
		child.outW.Close()
		if child.errsW != nil {
			child.errsW.Close()
		}
		in.status = in.p.fail(err)
		return nil
	}
	defer func() {
		if !background {
			files.flush()
		}
	}()
	if len(args) == 0 {
		closeAll(child)
		return nil
	}
	if done, err := in.builtin(child, args); done {
		closeAll(child)
		return err
	}
	child.Args = args
	prog, err := in.p.table.find(child, args[0])
	if err != nil {
		fmt.Fprintf(child.Stderr, "sh: %s: not found\n", args[0])
		closeAll(child)
		in.status = 127
		return nil
	}
	if err := in.p.table.launch(child, prog); err != nil {
		fmt.Fprintf(child.Stderr, "sh: Cannot fork\n")
		closeAll(child)
		in.status = 2
		return errExit
	}
	if background {
		in.status = 0
		return nil
	}
	<-child.exited
	in.status = child.code
	if child.signal != 0 {
		in.status = 128 + int(child.signal)
	}
	return nil
}

func closeAll(c *Process) {
	c.outW.Close()
	if c.errsW != nil {
		c.errsW.Close()
	}
}

func assignment(words []word) (string, word, bool) {
	if len(words) != 1 || len(words[0].parts) == 0 || words[0].parts[0].quoted {
		return "", word{}, false
	}
	name, value, ok := strings.Cut(words[0].parts[0].text, "=")
	if !ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return "", word{}, false
	}
	w := words[0]
	w.parts = append([]part{{value, true, false}}, w.parts[1:]...)
	return name, w, true
}

// files are what a command's output is redirected to, written when it ends.
type files []func()

func (f files) flush() {
	for _, write := range f {
		write()
	}
}

// redirect applies the redirections to c and returns the arguments.
func (in *interpreter) redirect(c *Process, words []word) (args []string, out files, err error) {
	for i := 0; i < len(words); i++ {
		switch op := words[i].op; op {
		case "":
			args = append(args, in.expand(words[i])...)
		case ">&2":
			c.Stdout = c.Stderr
		case "2>&1":
			c.Stderr = c.Stdout
		default:
			if i++; i == len(words) || words[i].op != "" {
				return nil, nil, errors.New("syntax error: a redirection to nowhere")
			}
			path := in.p.path(strings.Join(in.expand(words[i]), ""))
			flush, err := in.file(c, op, path)
			if err != nil {
				return nil, nil, err
			}
			if flush != nil {
				out = append(out, flush)
			}
		}
	}
	return args, out, nil
}

func (in *interpreter) file(c *Process, op, path string) (func(), error) {
	t := in.p.table.files
	if op == "<" {
		r, err := t.open(path, in.p.Context)
		c.Stdin = r
		return nil, err
	}
	var offset int64
	if op == ">>" {
		if info, err := t.Stat(path); err == nil {
			offset = info.Size
		}
	} else if err := t.truncate(path); err != nil {
		return nil, err
	}
	if err := t.write(path, 0o644, offset, nil); err != nil {
		return nil, err
	}
	buf := new(strings.Builder)
	if op == "2>" {
		c.Stderr = buf
	} else {
		c.Stdout = buf
	}
	return func() {
		if err := t.write(path, 0o644, offset, []byte(buf.String())); err != nil {
			in.status = in.p.fail(err)
		}
	}, nil
}

func (in *interpreter) builtin(c *Process, args []string) (done bool, err error) {
	status := in.status
	in.status = 0
	switch args[0] {
	case ":":
	case "cd":
		dir := c.path(strings.Join(args[1:], ""))
		if err := in.p.table.files.isDir(dir); err != nil {
			in.status = c.fail(err)
			break
		}
		in.p.Dir = dir
	case "exit":
		in.status = status
		if len(args) > 1 {
			in.status, _ = strconv.Atoi(args[1])
		}
		return true, errExit
	case "export":
		for _, kv := range args[1:] {
			if name, value, ok := strings.Cut(kv, "="); ok {
				in.p.Env = append(slices.DeleteFunc(slices.Clone(in.p.Env),
					func(s string) bool { return strings.HasPrefix(s, name+"=") }), name+"="+value)
			}
		}
	case "kill":
		in.status = in.kill(args)
	case "read":
		in.status = in.read(args)
	default:
		in.status = status
		return false, nil
	}
	return true, nil
}

// kill knows "kill -N PID".
func (in *interpreter) kill(args []string) int {
	if len(args) != 3 {
		return 2
	}
	sig, err1 := strconv.Atoi(strings.TrimPrefix(args[1], "-"))
	pid, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return 2
	}
	if in.p.table.signalIf(syscall.Signal(sig), func(p *Process) bool { return p.pid == pid }) == 0 {
		return 1
	}
	return 0
}

// read reads one line, byte by byte: what follows is the next command's.
func (in *interpreter) read(args []string) int {
	var line strings.Builder
	var b [1]byte
	for {
		n, err := in.p.Stdin.Read(b[:])
		if n == 1 && b[0] == '\n' {
			break
		}
		if n == 1 {
			line.WriteByte(b[0])
		}
		if err != nil {
			return 1
		}
	}
	if len(args) > 1 {
		in.vars[args[1]] = line.String()
	}
	return 0
}
