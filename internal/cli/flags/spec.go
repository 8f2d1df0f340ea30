// Package flags owns the flags and arguments that commands of several rooms take,
// and the requests that they become.
package flags

import (
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Spec are the flags of "cove run" as they were written.
type Spec struct {
	Given func(flag string) bool // on the command line

	Code    string
	Files   []string
	Env     []string
	Mounts  []string
	WorkDir string
	Image   string
	Engine  string
	Profile string

	Policy      Policy
	Credentials []string
	Models      Models

	Memory, Disk, Stdout, Stderr string
	Timeout                      string
	CPUs                         float64
	PIDs, Inodes, OpenFiles      int64

	Stdin bool // hand on a terminal's input too
	JSON  bool
}

// Source finds the program's text: -c, a FILE, or standard input for "-".
func (o *Spec) Source(file string, stdin io.Reader) (string, error) {
	switch {
	case o.Given("code") && file != "":
		return "", cove.Errorf(cove.InvalidArgument, "both -c and the file %s were given", file).
			WithHint("put -- before arguments of the program")
	case o.Given("code"):
		return o.Code, CheckText("the code of -c", o.Code)
	case file == "":
		return "", cove.Errorf(cove.InvalidArgument, "there is no code to run").
			WithHint("name a file, write the code with -c, or use - to read it from standard input")
	}
	var data []byte
	var err error
	if file == "-" {
		data, err = ReadLimited(stdin, "the code on standard input", maxCode)
	} else {
		data, _, err = ReadFile(file, maxCode)
	}
	if err != nil {
		return "", err
	}
	name := file
	if file == "-" {
		name = "the code on standard input"
	}
	return string(data), CheckText(name, string(data))
}

// Request builds what is sent, apart from the code.
func (o *Spec) Request(language string, args []string, getenv func(string) string) (api.ExecuteRequest, error) {
	req := api.ExecuteRequest{Language: language, Args: args, Image: o.Image, Engine: o.Engine}
	var err error
	if req.Image, err = AbsoluteImage(o.Image); err != nil {
		return req, err
	}
	if req.Limits, req.Timeout, err = o.Limits(); err != nil {
		return req, err
	}
	if req.Env, err = Environment(o.Env, getenv); err != nil {
		return req, err
	}
	if err := checkTexts(req); err != nil {
		return req, err
	}
	if req.Files, err = readFiles(o.Files); err != nil {
		return req, err
	}
	for _, m := range o.Mounts {
		mount, err := parseMount(m)
		if err != nil {
			return req, err
		}
		req.Mounts = append(req.Mounts, mount)
	}
	if req.Permissions, err = o.permissions(); err != nil {
		return req, err
	}
	if req.Permissions == nil && o.Policy.Network != "" { // none, which wins over a profile's
		req.Permissions = &api.Permissions{Network: &api.NetworkPermission{}}
	}
	if o.WorkDir != "" {
		if req.WorkDir, err = filepath.Abs(o.WorkDir); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--work-dir %s: %w", o.WorkDir, err)
		}
	}
	return req, nil
}

// permissions are nil when no flag asks for a network.
func (o *Spec) permissions() (*api.Permissions, error) {
	switch {
	case !o.Policy.Given() && len(o.Credentials) == 0 && len(o.Models.providers) == 0:
		if o.Models.Given() {
			return nil, cove.Errorf(cove.InvalidArgument, "--budget is for models, and without a network there are none").WithHint("say which with --model-provider NAME")
		}
		return nil, nil
	case o.Policy.Network == string(cove.NetworkNone):
		if len(o.Policy.allow)+len(o.Policy.Files)+len(o.Credentials) > 0 || o.Models.Given() || o.Policy.allowPR {
			return nil, cove.Errorf(cove.InvalidArgument, "--network none leaves nothing to allow").WithHint("leave one of them out")
		}
		return nil, nil
	}
	p, err := o.Policy.Texts()
	if err != nil {
		return nil, err
	}
	models, err := o.Models.Permission()
	if err != nil {
		return nil, err
	}
	return &api.Permissions{Network: &api.NetworkPermission{Enabled: true, GatewayPolicy: p, Credentials: o.Credentials, ModelPermission: models}}, nil
}

// Limits are nil when no flag was given.
func (o *Spec) Limits() (*api.Limits, float64, error) {
	var l api.Limits
	for _, f := range []struct {
		flag, text string
		step       int64
		to         *int64
	}{
		{"memory", o.Memory, 1 << 20, &l.MemoryMB},
		{"disk", o.Disk, 1 << 20, &l.DiskMB},
		{"stdout-limit", o.Stdout, 1 << 10, &l.StdoutKB},
		{"stderr-limit", o.Stderr, 1 << 10, &l.StderrKB},
	} {
		if !o.Given(f.flag) {
			continue
		}
		n, err := ui.ParseSize(f.text, f.step)
		if err != nil {
			return nil, 0, inFlag("--"+f.flag, err)
		}
		*f.to = n / f.step
	}
	for _, f := range []struct {
		flag string
		n    int64
		to   *int64
	}{{"pids", o.PIDs, &l.PIDs}, {"inodes", o.Inodes, &l.Inodes}, {"open-files", o.OpenFiles, &l.OpenFiles}} {
		if o.Given(f.flag) && f.n <= 0 {
			return nil, 0, cove.Errorf(cove.InvalidArgument, "--%s %d: it must be more than nothing", f.flag, f.n).WithHint("leave the flag out for the default")
		}
		*f.to = f.n
	}
	if o.Given("cpus") && o.CPUs <= 0 || math.IsNaN(o.CPUs) || math.IsInf(o.CPUs, 0) {
		return nil, 0, cove.Errorf(cove.InvalidArgument, "--cpus %v is not a number of cores", o.CPUs).WithHint("write it like 0.5 or 2")
	}
	l.CPUs = o.CPUs
	var timeout time.Duration
	if o.Given("timeout") {
		var err error
		if timeout, err = ui.ParseSeconds(o.Timeout); err != nil {
			return nil, 0, inFlag("--timeout", err)
		}
	}
	if l == (api.Limits{}) {
		return nil, timeout.Seconds(), nil
	}
	return &l, timeout.Seconds(), nil
}
