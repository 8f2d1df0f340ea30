package fake

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usualPrograms are the commands of every sandbox in memory: as much of each as tests use.
func usualPrograms() map[string]Program {
	return map[string]Program{
		"true":   func(*Process) int { return 0 },
		"false":  func(*Process) int { return 1 },
		"bash":   sh,
		"cat":    cat,
		"echo":   echo,
		"env":    printenv,
		"head":   head,
		"id":     id,
		"ln":     ln,
		"mkfifo": mkfifo,
		"printf": printf,
		"pwd":    pwd,
		"sh":     sh,
		"sleep":  sleep,
		"stty":   stty,
	}
}

// fail reports an error as programs do.
func (p *Process) fail(err error) int {
	fmt.Fprintf(p.Stderr, "%s: %s\n", p.Args[0], describe(err))
	return 1
}

func describe(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		s := no.Error()
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return err.Error()
}

// copied copies to the output until either side ends; a broken pipe is no error but the end of the program.
func (p *Process) copied(r io.Reader) error {
	_, err := io.Copy(struct{ io.Writer }{p.Stdout}, r)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

func (p *Process) open(name string) (io.Reader, error) {
	return p.table.files.open(p.path(name), p.Context)
}

func cat(p *Process) int {
	names := p.Args[1:]
	if len(names) == 0 {
		if err := p.copied(p.Stdin); err != nil {
			return p.fail(err)
		}
		return 0
	}
	for _, name := range names {
		r, err := p.open(name)
		if err != nil {
			return p.fail(fmt.Errorf("%s: %s", name, describe(err)))
		}
		if err := p.copied(r); err != nil {
			return p.fail(err)
		}
	}
	return 0
}

func echo(p *Process) int {
	fmt.Fprintln(p.Stdout, strings.Join(p.Args[1:], " "))
	return 0
}

func printenv(p *Process) int {
	end := "\n"
	if len(p.Args) > 1 && p.Args[1] == "-0" {
		end = "\x00"
	}
	for _, kv := range p.Env {
		io.WriteString(p.Stdout, kv+end)
	}
	return 0
}

// head knows "head -c N [FILE]".
func head(p *Process) int {
	if len(p.Args) < 3 || p.Args[1] != "-c" {
		return p.fail(errors.New("only -c is known"))
	}
	n, err := strconv.ParseInt(p.Args[2], 10, 64)
	if err != nil {
		return p.fail(err)
	}
	r := p.Stdin
	if len(p.Args) > 3 {
		if r, err = p.open(p.Args[3]); err != nil {
			return p.fail(err)
		}
	}
	if err := p.copied(io.LimitReader(r, n)); err != nil {
		return p.fail(err)
	}
	return 0
}

func id(p *Process) int {
	fmt.Fprintln(p.Stdout, p.table.uid) // user and group are equal
	return 0
}

func ln(p *Process) int {
	if len(p.Args) != 4 || p.Args[1] != "-s" {
		return p.fail(errors.New("only -s TARGET NAME is known"))
	}
	if err := p.table.files.symlink(p.Args[2], p.path(p.Args[3])); err != nil {
		return p.fail(err)
	}
	return 0
}

func mkfifo(p *Process) int {
	for _, name := range p.Args[1:] {
		if err := p.table.files.create(p.path(name), &node{mode: os.ModeNamedPipe | 0o644}); err != nil {
			return p.fail(err)
		}
	}
	return 0
}

// printf knows %s, \n and \0, and repeats its format as long as there are arguments.
func printf(p *Process) int {
	if len(p.Args) < 2 {
		return p.fail(errors.New("no format"))
	}
	format := strings.NewReplacer(`\n`, "\n", `\0`, "\x00", `\t`, "\t").Replace(p.Args[1])
	args := p.Args[2:]
	var out strings.Builder
	for {
		parts := strings.Split(format, "%s")
		for i, part := range parts {
			out.WriteString(part)
			if i < len(parts)-1 && len(args) > 0 {
				out.WriteString(args[0])
				args = args[1:]
			}
		}
		if len(args) == 0 || len(parts) == 1 {
			break
		}
	}
	io.WriteString(p.Stdout, out.String())
	return 0
}

func pwd(p *Process) int {
	fmt.Fprintln(p.Stdout, p.Dir)
	return 0
}

func sleep(p *Process) int {
	if len(p.Args) != 2 {
		return p.fail(errors.New("how long?"))
	}
	seconds, err := strconv.ParseFloat(p.Args[1], 64)
	if err != nil {
		return p.fail(err)
	}
	p.Sleep(time.Duration(seconds * float64(time.Second)))
	return 0
}

// stty knows "size"; every setting is accepted and does nothing.
func stty(p *Process) int {
	if p.tty == nil {
		return p.fail(syscall.ENOTTY)
	}
	if len(p.Args) == 2 && p.Args[1] == "size" {
		p.tty.mu.Lock()
		defer p.tty.mu.Unlock()
		fmt.Fprintf(p.Stdout, "%d %d\n", p.tty.rows, p.tty.cols)
	}
	return 0
}
