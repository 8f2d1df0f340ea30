package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

const (
	// deadline bounds a program that returns a value.
	deadline = 10 * time.Second
	maxRead  = 64 << 10 // bytes of a file or of a program's output
)

// Source is a reference to a value on the host, and not secret.
type Source struct {
	kind kind
	name string   // of a variable or file
	argv []string // of a command
}

type kind string

const (
	fromEnv     kind = "env"
	fromFile    kind = "file"
	fromCommand kind = "command"
	fromGit     kind = "git-credential"
	fromGH      kind = "gh"
	fromClaude  kind = "claude"
	fromAWS     kind = "aws"
	fromMachine kind = "machine" // the sources of git and gh; of ForRemote only
)

const sourceHint = "a source is env:NAME, file:/PATH, command:PROGRAM ARGUMENTS, git-credential, gh, claude or aws"

var variableName = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,200}$`)

// ParseSource parses a source. Its errors do not repeat the text, perhaps a value by mistake. Errors: InvalidArgument.
func ParseSource(s string) (Source, error) {
	bad := func(why string) (Source, error) {
		return Source{}, cove.Errorf(cove.InvalidArgument, "this is no source of a credential: %s", why).WithHint(sourceHint)
	}
	k, rest, _ := strings.Cut(s, ":")
	switch kind(k) {
	case fromEnv:
		if !variableName.MatchString(rest) {
			return bad("env: needs the name of a variable")
		}
		return Source{kind: fromEnv, name: rest}, nil
	case fromFile:
		if below, ok := strings.CutPrefix(rest, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return bad("there is no home directory")
			}
			rest = filepath.Join(home, below)
		}
		if !filepath.IsAbs(rest) || !printable(rest) {
			return bad("file: needs an absolute path")
		}
		return Source{kind: fromFile, name: filepath.Clean(rest)}, nil
	case fromCommand:
		if strings.ContainsAny(rest, "\"'`$\\|&;<>()*?~") {
			return Source{}, cove.Errorf(cove.InvalidArgument, "no shell reads the command of a credential").WithHint(
				"write it as a list: source: [command, PROGRAM, ARGUMENT]")
		}
		return command(strings.Fields(rest))
	case fromGit, fromGH, fromClaude, fromAWS:
		if s != k {
			return bad(k + " takes nothing")
		}
		return Source{kind: kind(k)}, nil
	}
	return bad("it is of no known kind")
}

func command(argv []string) (Source, error) {
	if len(argv) == 0 || argv[0] == "" || strings.Contains(strings.Join(argv, ""), "\x00") {
		return Source{}, cove.Errorf(cove.InvalidArgument, "command: needs a program").WithHint(sourceHint)
	}
	return Source{kind: fromCommand, argv: argv}, nil
}

// String returns the source without the arguments of a command.
func (s Source) String() string {
	switch s.kind {
	case fromEnv, fromFile:
		return string(s.kind) + ":" + s.name
	case fromCommand:
		return "command:" + s.argv[0]
	}
	return string(s.kind)
}

func (s Source) key() string { return fmt.Sprintf("%s %q %q", s.kind, s.name, s.argv) }

// program reports whether reading the source runs a program.
func (s Source) program() bool {
	return s.kind != fromEnv && s.kind != fromFile && s.kind != fromClaude
}

// remedy returns what gives the source a value. A variable's is that of the credential.
func (s Source) remedy() string {
	switch s.kind {
	case fromFile:
		return "write it to " + s.name
	case fromCommand:
		return "see that " + s.argv[0] + " prints it"
	case fromGH:
		return "log in with gh auth login, or set GH_TOKEN"
	case fromClaude:
		return "log in to Claude Code"
	case fromAWS:
		return "export AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=…, or log in with aws"
	}
	return "have git know it (git credential approve)"
}

// there reports whether the source seems to have a value, without running a program.
func (s Source) there() bool {
	switch s.kind {
	case fromEnv:
		return os.Getenv(s.name) != ""
	case fromFile:
		_, err := os.Stat(s.name)
		return err == nil
	case fromClaude:
		_, err := claudeLogin()
		return err == nil
	}
	return true
}

// account returns the account that a source of many hosts is asked for: github.com and its subdomains share accounts.
func (s Source) account(host policy.Host, port uint16) string {
	if s.kind != fromGit && s.kind != fromGH && s.kind != fromMachine {
		return ""
	}
	if strings.HasSuffix("."+host.Name(), ".github.com") {
		return "github.com"
	}
	return strings.TrimSuffix(host.Authority(port), ":443")
}

// read returns the value and, if the source returns it, its user. Its errors contain nothing of the value.
func (s Source) read(ctx context.Context, account string) (user, value string, err error) {
	switch s.kind {
	case fromEnv:
		v, ok := os.LookupEnv(s.name)
		if !ok {
			return "", "", cove.Errorf(cove.NotFound, "the variable is not set")
		}
		return "", v, nil
	case fromFile:
		value, err = readFile(s.name)
		return "", trim(value), err
	case fromCommand:
		out, err := run(ctx, "", s.argv...)
		return "", trim(out), err
	case fromGH:
		value, err = ghToken(ctx, account)
		return "", value, err
	case fromClaude:
		value, err = claudeLogin()
		return "", value, err
	case fromAWS:
		value, err = readAWS(ctx)
		return "", value, err
	case fromMachine:
		return readMachine(ctx, account)
	case fromGit:
		return gitLogin(ctx, account)
	}
	return "", "", cove.Errorf(cove.Internal, "a source of no kind")
}

// claudeLogin reads Claude Code's login on this machine. The login expires; Claude Code renews it when it is used.
func claudeLogin() (string, error) {
	dir := os.Getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("there is no home directory")
		}
		dir = filepath.Join(home, ".claude")
	}
	text, err := readFile(filepath.Join(dir, ".credentials.json"))
	if err != nil {
		return "", err
	}
	var kept struct {
		OAuth struct {
			Token   string `json:"accessToken"`
			Expires int64  `json:"expiresAt"` // milliseconds since 1970
		} `json:"claudeAiOauth"`
	}
	if json.Unmarshal([]byte(text), &kept) != nil || kept.OAuth.Token == "" {
		return "", errors.New("there is no login of Claude Code")
	}
	if kept.OAuth.Expires > 0 && time.UnixMilli(kept.OAuth.Expires).Before(time.Now()) {
		return "", cove.Errorf(cove.InvalidArgument, "the login of Claude Code has expired; use it once on this machine, or "+
			"make a token that lasts with claude setup-token")
	}
	return kept.OAuth.Token, nil
}

// trim removes the final newline of editors and programs.
func trim(s string) string { return strings.TrimRight(s, "\r\n") }

func readFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", bare(err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = errors.New("the file is too large")
	}
	return string(data), err
}

// bare returns the cause without the path, which the source contains.
func bare(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// awsVariables hold keys of AWS: the first two, and perhaps the third.
var awsVariables = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}

// readAWS returns keys as AWS's programs print them: those of the environment, or those that the aws program finds.
func readAWS(ctx context.Context) (string, error) {
	id, key := os.Getenv(awsVariables[0]), os.Getenv(awsVariables[1])
	if id == "" && key == "" {
		return run(ctx, "", "aws", "configure", "export-credentials", "--format", "process")
	}
	keys, err := json.Marshal(map[string]string{"AccessKeyId": id, "SecretAccessKey": key,
		"SessionToken": os.Getenv(awsVariables[2])})
	return string(keys), err
}

// ghToken returns the token that gh would use. gh reads the variables first, so they count without gh, too.
func ghToken(ctx context.Context, account string) (string, error) {
	if account == "github.com" {
		if token := tokenVariable(account); token != "" {
			return token, nil
		}
	}
	out, err := run(ctx, "", "gh", "auth", "token", "--hostname", account)
	return trim(out), err
}

func gitLogin(ctx context.Context, account string) (user, value string, err error) {
	out, err := run(ctx, "protocol=https\nhost="+account+"\n\n", "git", "credential", "fill")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(out) {
		name, v, _ := strings.Cut(trim(line), "=")
		switch name {
		case "username":
			user = v
		case "password":
			value = v
		}
	}
	if value == "" {
		return "", "", errors.New("git knows no password")
	}
	return user, value, nil
}

// run runs a program and returns its output, in Cove's environment and without a terminal for questions. Standard error
// is discarded: programs that handle secrets may print them there.
func run(ctx context.Context, stdin string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/" // no repository, no project
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GCM_INTERACTIVE=never",
		"GH_PROMPT_DISABLED=1")
	cmd.Stdin = strings.NewReader(stdin)
	out := &limited{}
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", errors.New("it was not there in time")
	case out.full:
		return "", errors.New("the program wrote too much")
	case err != nil:
		return "", fmt.Errorf("the program %s failed: %w", filepath.Base(argv[0]), err)
	}
	return out.buffer.String(), nil
}

// limited is a writer with a maximum size. It is not a Buffer, whose ReadFrom would ignore the maximum.
type limited struct {
	buffer bytes.Buffer
	full   bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.full = l.full || l.buffer.Len()+len(p) > maxRead; l.full {
		return 0, io.ErrShortWrite
	}
	return l.buffer.Write(p)
}

const anyUser = "x-access-token" // the placeholder for a user that only the source knows

// tokens are the variables from which a host's tools read its token.
var tokens = map[string][]string{"github.com": {"GH_TOKEN", "GITHUB_TOKEN"}, "gitlab.com": {"GITLAB_TOKEN"}}

func tokenVariable(account string) string {
	for _, v := range tokens[account] {
		if value := os.Getenv(v); value != "" {
			return value
		}
	}
	return ""
}

// readMachine reads the sources of git and a host's tools: the environment, gh, and git's configured credential store.
func readMachine(ctx context.Context, account string) (user, value string, err error) {
	if token := tokenVariable(account); token != "" {
		return anyUser, token, nil
	}
	if token, err := ghToken(ctx, account); err == nil && token != "" {
		return anyUser, token, nil
	}
	return gitLogin(ctx, account)
}
