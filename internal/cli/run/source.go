package run

import (
	"strings"

	"github.com/cove-sandbox/cove"
)

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
