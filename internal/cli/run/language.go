package run

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// splitArgs takes apart [RUNTIME] [FILE], then what follows "--". inline is for code on the command line, which needs
// no file. A file alone says by its extension which runtime it needs.
func splitArgs(args []string, dash int, inline bool) (language, file string, rest []string, err error) {
	if dash >= 0 {
		args, rest = args[:dash], args[dash:]
	}
	switch {
	case len(args) == 0:
		return "", "", nil, cove.Errorf(cove.InvalidArgument, "no runtime was named").
			WithHint(`for example "cove run python -c 'print(1)'"; "cove runtimes" lists them`)
	case isRuntime(args[0]) || len(args) == 1 && inline:
		language, args = args[0], args[1:]
	case languageOf(args[0]) != "":
		language = languageOf(args[0])
	case len(args) == 1:
		return "", "", nil, noLanguage(args[0])
	default: // which the server may know
		language, args = args[0], args[1:]
	}
	if len(args) > 1 {
		return "", "", nil, cove.Errorf(cove.InvalidArgument, "%q is one argument too many", args[1]).
			WithHint("put -- before arguments of the program: cove run %s %s -- %s",
				language, args[0], strings.Join(args[1:], " "))
	}
	if len(args) == 1 {
		file = args[0]
	}
	return language, file, rest, nil
}

// split is splitArgs, where nothing but an image, or a program of it, asks for the image's own program.
func (o *options) split(args []string, dash int) (language, file string, rest []string, err error) {
	named := len(args)
	if dash >= 0 {
		named = dash
	}
	if named == 0 && !o.Given("code") && (o.Image != "" || o.Profile != "" || o.entrypoint != "") {
		return runtime.Image, "", args, nil
	}
	return splitArgs(args, dash, o.Given("code"))
}

func isRuntime(name string) bool {
	r, err := runtime.Lookup(name)
	return err == nil && !r.OfImage()
}

// languageOf returns the runtime for a file's extension, or nothing.
func languageOf(file string) string {
	extension := strings.TrimPrefix(filepath.Ext(file), ".")
	if r, err := runtime.Lookup(extension); err == nil && extension != file && !r.OfImage() {
		return r.Name
	}
	return ""
}

// noLanguage is the error for one argument that is neither a runtime nor a file whose name says which one it needs.
func noLanguage(name string) error {
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		return cove.Errorf(cove.InvalidArgument, "the name of %s does not say which language it is in", name).
			WithHint("name it first: cove run python %s", ui.ShellWord(name))
	}
	_, err := runtime.Lookup(name)
	return explainLanguage(err, name)
}

// explainLanguage adds the runtime that was probably meant to an error about one that is not there.
func explainLanguage(err error, name string) error {
	if isRuntime(name) || cove.ErrorCode(err) != cove.InvalidArgument {
		return err
	}
	var names []string
	for _, r := range runtime.All() {
		names = append(append(names, r.Name), r.Aliases...)
	}
	near := ui.Nearest(strings.ToLower(name), names)
	if near == "" {
		return err
	}
	return cove.Errorf(cove.InvalidArgument, "there is no runtime %.64q", name).WithHint("did you mean %q?", near)
}
