package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// maxCode is what the API takes as code, and maxFiles as files together; more
// is not even read.
const (
	maxCode  = 1 << 20
	maxFiles = 16 << 20
)

// options are the flags of "cove run" as they were written.
type options struct {
	given func(flag string) bool // on the command line

	code    string
	files   []string
	env     []string
	mounts  []string
	workDir string
	image   string
	engine  string
	profile string

	policy      policyFlags
	credentials []string
	models      modelFlags

	memory, disk, stdout, stderr string
	timeout                      string
	cpus                         float64
	pids, inodes, openFiles      int64

	stdin bool // hand on a terminal's input too
	json  bool
}

// request builds what is sent, apart from the code.
func (o *options) request(language string, args []string, getenv func(string) string) (api.ExecuteRequest, error) {
	req := api.ExecuteRequest{Language: language, Args: args, Spec: api.Spec{Image: o.image, Engine: o.engine}}
	var err error
	if req.Image, err = absoluteImage(o.image); err != nil {
		return req, err
	}
	if req.Limits, req.Timeout, err = o.limits(); err != nil {
		return req, err
	}
	if req.Env, err = environment(o.env, getenv); err != nil {
		return req, err
	}
	if err := checkTexts(req); err != nil {
		return req, err
	}
	if req.Files, err = readFiles(o.files); err != nil {
		return req, err
	}
	for _, m := range o.mounts {
		mount, err := parseMount(m)
		if err != nil {
			return req, err
		}
		req.Mounts = append(req.Mounts, mount)
	}
	if req.Permissions, err = o.permissions(); err != nil {
		return req, err
	}
	if req.Permissions == nil && o.policy.network != "" { // none, which wins over a profile's
		req.Permissions = &api.Permissions{Network: &api.NetworkPermission{}}
	}
	if o.workDir != "" {
		if req.WorkDir, err = filepath.Abs(o.workDir); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--work-dir %s: %w", o.workDir, err)
		}
	}
	return req, nil
}

// permissions are nil when no flag asks for a network.
func (o *options) permissions() (*api.Permissions, error) {
	switch {
	case !o.policy.given() && len(o.credentials) == 0 && len(o.models.providers) == 0:
		if o.models.given() {
			return nil, cove.Errorf(cove.InvalidArgument, "--budget is for models, and without a network there are none").WithHint("say which with --model-provider NAME")
		}
		return nil, nil
	case o.policy.network == string(cove.NetworkNone):
		if len(o.policy.allow)+len(o.policy.files)+len(o.credentials) > 0 || o.models.given() || o.policy.allowPR {
			return nil, cove.Errorf(cove.InvalidArgument, "--network none leaves nothing to allow").WithHint("leave one of them out")
		}
		return nil, nil
	}
	p, err := o.policy.texts()
	if err != nil {
		return nil, err
	}
	models, err := o.models.permission()
	if err != nil {
		return nil, err
	}
	return &api.Permissions{Network: &api.NetworkPermission{Enabled: true, GatewayPolicy: p, Credentials: o.credentials, ModelPermission: models}}, nil
}

// limits are nil when no flag was given.
func (o *options) limits() (*api.Limits, float64, error) {
	var l api.Limits
	for _, f := range []struct {
		flag, text string
		step       int64
		to         *int64
	}{
		{"memory", o.memory, 1 << 20, &l.MemoryMB},
		{"disk", o.disk, 1 << 20, &l.DiskMB},
		{"stdout-limit", o.stdout, 1 << 10, &l.StdoutKB},
		{"stderr-limit", o.stderr, 1 << 10, &l.StderrKB},
	} {
		if !o.given(f.flag) {
			continue
		}
		n, err := parseSize(f.text, f.step)
		if err != nil {
			return nil, 0, inFlag("--"+f.flag, err)
		}
		*f.to = n / f.step
	}
	for _, f := range []struct {
		flag string
		n    int64
		to   *int64
	}{{"pids", o.pids, &l.PIDs}, {"inodes", o.inodes, &l.Inodes}, {"open-files", o.openFiles, &l.OpenFiles}} {
		if o.given(f.flag) && f.n <= 0 {
			return nil, 0, cove.Errorf(cove.InvalidArgument, "--%s %d: it must be more than nothing", f.flag, f.n).WithHint("leave the flag out for the default")
		}
		*f.to = f.n
	}
	if o.given("cpus") && o.cpus <= 0 || math.IsNaN(o.cpus) || math.IsInf(o.cpus, 0) {
		return nil, 0, cove.Errorf(cove.InvalidArgument, "--cpus %v is not a number of cores", o.cpus).WithHint("write it like 0.5 or 2")
	}
	l.CPUs = o.cpus
	var timeout time.Duration
	if o.given("timeout") {
		var err error
		if timeout, err = parseSeconds(o.timeout); err != nil {
			return nil, 0, inFlag("--timeout", err)
		}
	}
	if l == (api.Limits{}) {
		return nil, timeout.Seconds(), nil
	}
	return &l, timeout.Seconds(), nil
}

// inFlag names the flag in front of what is wrong with it.
func inFlag(flag string, err error) error {
	var e *cove.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Message = flag + " " + e.Message
	return &c
}

// environment reads NAME=VALUE, and NAME alone as this process's own value.
func environment(pairs []string, getenv func(string) string) (map[string]string, error) {
	env := map[string]string{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if name == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "--env %s has no name", p).WithHint("write NAME=VALUE, or NAME for this shell's value")
		}
		if !ok {
			value = getenv(name)
		}
		env[name] = value
	}
	return env, nil
}

// parseMount reads SRC:DST[:ro|:rw]; SRC may be relative.
func parseMount(s string) (api.Mount, error) {
	text, readOnly := strings.CutSuffix(s, ":ro")
	text = strings.TrimSuffix(text, ":rw")
	source, target, ok := strings.Cut(text, ":")
	if !ok || source == "" || !strings.HasPrefix(target, "/") || strings.Contains(target, ":") {
		return api.Mount{}, cove.Errorf(cove.InvalidArgument, "--mount %s is not SOURCE:TARGET[:ro] with an absolute TARGET", s).
			WithHint("for example --mount ./data:/data:ro")
	}
	abs, err := filepath.Abs(source)
	if err != nil {
		return api.Mount{}, cove.Errorf(cove.InvalidArgument, "--mount %s: %w", s, err)
	}
	return api.Mount{Source: abs, Target: target, ReadOnly: readOnly}, nil
}

// readFiles reads what is placed beside the code. A relative path keeps its
// directories; any other file goes by its last name.
func readFiles(paths []string) ([]api.File, error) {
	var files []api.File
	total := 0
	for _, p := range paths {
		data, mode, err := readFile(p, maxFiles-total)
		if err != nil {
			return nil, err
		}
		total += len(data)
		name := filepath.Clean(p)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, fileOf(filepath.ToSlash(name), data, mode))
	}
	return files, nil
}

// fileOf is a file as it is sent: text as it is, and anything else encoded.
func fileOf(path string, data []byte, mode fs.FileMode) api.File {
	f := api.File{Path: path, Content: string(data), Mode: uint32(mode.Perm())}
	if !utf8.Valid(data) {
		f.Content, f.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return f
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fileError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fileError(path, err)
	}
	if info.IsDir() {
		return nil, 0, cove.Errorf(cove.InvalidArgument, "%s is a directory", path).WithHint("attach it with --mount %s:/data:ro", path)
	}
	data, err := readLimited(f, path, limit)
	return data, info.Mode(), err
}

func readLimited(r io.Reader, name string, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fileError(name, err)
	}
	if len(data) > limit {
		return nil, cove.Errorf(cove.TooLarge, "%s is larger than %s", name, sizeText(int64(limit))).
			WithHint("attach large files with --mount")
	}
	return data, nil
}

func fileError(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, err)
}

// source finds the program's text: -c, a FILE, or standard input for "-".
func (o *options) source(file string, stdin io.Reader) (string, error) {
	switch {
	case o.given("code") && file != "":
		return "", cove.Errorf(cove.InvalidArgument, "both -c and the file %s were given", file).
			WithHint("put -- before arguments of the program")
	case o.given("code"):
		return o.code, checkText("the code of -c", o.code)
	case file == "":
		return "", cove.Errorf(cove.InvalidArgument, "there is no code to run").
			WithHint("name a file, write the code with -c, or use - to read it from standard input")
	}
	var data []byte
	var err error
	if file == "-" {
		data, err = readLimited(stdin, "the code on standard input", maxCode)
	} else {
		data, _, err = readFile(file, maxCode)
	}
	if err != nil {
		return "", err
	}
	name := file
	if file == "-" {
		name = "the code on standard input"
	}
	return string(data), checkText(name, string(data))
}

// checkTexts checks what goes out as text and is nobody's file.
func checkTexts(req api.ExecuteRequest) error {
	for i, arg := range req.Args {
		if err := checkText(fmt.Sprintf("argument %d of the program", i+1), arg); err != nil {
			return err
		}
	}
	for name, value := range req.Env {
		if err := checkText("the variable "+name, name+value); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what JSON would replace silently.
func checkText(name, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s is not UTF-8 text", name).
		WithHint("give compiled programs and data with --file, --mount or on standard input")
}

// splitArgs takes apart RUNTIME [FILE], then what follows "--".
func splitArgs(args []string, dash int) (language, file string, rest []string, err error) {
	if dash >= 0 {
		args, rest = args[:dash], args[dash:]
	}
	switch {
	case len(args) == 0:
		return "", "", nil, cove.Errorf(cove.InvalidArgument, "no runtime was named").
			WithHint(`for example "cove run python -c 'print(1)'"; "cove runtimes" lists them`)
	case len(args) > 2:
		return "", "", nil, cove.Errorf(cove.InvalidArgument, "%q is one argument too many", args[2]).
			WithHint("put -- before arguments of the program: cove run %s %s -- %s", args[0], args[1], strings.Join(args[2:], " "))
	case len(args) == 2:
		file = args[1]
	}
	return args[0], file, rest, nil
}
