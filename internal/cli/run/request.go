package run

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/flags"
)

// maxCode is the API's limit on the size of code, in bytes. Code beyond it is not read.
const maxCode = 1 << 20

// request builds what is sent, apart from the code.
func (o *options) request(language string, args []string, getenv func(string) string) (api.ExecuteRequest, error) {
	req := api.ExecuteRequest{Language: language, Args: args}
	made, err := o.Resolve(getenv)
	if err != nil {
		return req, err
	}
	req.Spec, req.Timeout = made.Spec, made.Timeout
	if made.Network != nil {
		req.Permissions = &api.Permissions{Network: made.Network}
	}
	for i, arg := range args {
		if err := flags.CheckText(fmt.Sprintf("argument %d of the program", i+1), arg); err != nil {
			return req, err
		}
	}
	if req.Files, err = readFiles(o.files); err != nil {
		return req, err
	}
	if o.WorkDir != "" {
		if req.WorkDir, err = filepath.Abs(o.WorkDir); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--work-dir %s: %w", o.WorkDir, err)
		}
	}
	return req, nil
}

// readFiles reads what is placed beside the code. A relative path keeps its
// directories; any other file goes by its last name.
func readFiles(paths []string) ([]api.File, error) {
	var files []api.File
	total := 0
	for _, p := range paths {
		data, mode, err := flags.ReadFile(p, flags.MaxFiles-total)
		if err != nil {
			return nil, err
		}
		total += len(data)
		name := filepath.Clean(p)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, flags.File(filepath.ToSlash(name), data, mode))
	}
	return files, nil
}

// source finds the program's text: -c, a FILE, or standard input for "-".
func (o *options) source(file string, stdin io.Reader) (string, error) {
	switch {
	case o.Given("code") && file != "":
		return "", cove.Errorf(cove.InvalidArgument, "both -c and the file %s were given", file).
			WithHint("put -- before arguments of the program")
	case o.Given("code"):
		return o.code, flags.CheckText("the code of -c", o.code)
	case file == "":
		return "", cove.Errorf(cove.InvalidArgument, "there is no code to run").
			WithHint("name a file, write the code with -c, or use - to read it from standard input")
	}
	name := file
	var data []byte
	var err error
	if file == "-" {
		name = "the code on standard input"
		data, err = flags.ReadLimited(stdin, name, maxCode)
	} else {
		data, _, err = flags.ReadFile(file, maxCode)
	}
	if err != nil {
		return "", err
	}
	return string(data), flags.CheckText(name, string(data))
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
			WithHint("put -- before arguments of the program: cove run %s %s -- %s",
				args[0], args[1], strings.Join(args[2:], " "))
	case len(args) == 2:
		file = args[1]
	}
	return args[0], file, rest, nil
}
