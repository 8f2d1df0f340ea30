package hostgit

import (
	"strings"
	"unicode"

	"github.com/cove-sandbox/cove"
)

// words maps git's messages, in the C locale, to codes. The first match counts.
var words = []struct {
	has  string
	code cove.Code
}{
	{"No space left on device", cove.StorageFull},
	{"Disk quota exceeded", cove.StorageFull},
	{"File too large", cove.TooLarge},
	{"Read-only file system", cove.StorageFull},
	{"unable to write file", cove.StorageFull}, // git does not state the reason for working files
	{"unable to write new index file", cove.StorageFull},
	{"Authentication failed", cove.Forbidden},
	{"could not read Username", cove.Forbidden},
	{"could not read Password", cove.Forbidden},
	{"unable to get password from user", cove.Forbidden}, // since 2.48
	{"The requested URL returned error: 401", cove.Forbidden},
	{"The requested URL returned error: 403", cove.Forbidden},
	{"The requested URL returned error: 407", cove.Forbidden},
	{"from proxy after CONNECT", cove.Forbidden},
	{"CONNECT tunnel failed", cove.Forbidden},
	{"The requested URL returned error: 404", cove.NotFound},
	{"not found", cove.NotFound},
	{"does not appear to be a git repository", cove.NotFound},
	{"couldn't find remote ref", cove.NotFound},
	{"upload-pack: not our ref", cove.NotFound},
	{"transport '", cove.Forbidden},
	{"Could not resolve", cove.Unavailable},
	{"Failed to connect", cove.Unavailable},
	{"Couldn't connect", cove.Unavailable},
	{"Connection refused", cove.Unavailable},
	{"Connection reset", cove.Unavailable},
	{"Connection timed out", cove.Unavailable},
	{"Operation too slow", cove.Unavailable},
	{"The requested URL returned error: 5", cove.Unavailable},
	{"early EOF", cove.Unavailable},
	{"the remote end hung up", cove.Unavailable},
	{"unexpected disconnect", cove.Unavailable},
	{"SSL", cove.Unavailable},
	{"certificate", cove.Unavailable},
	{"RPC failed", cove.Unavailable},
	{"unable to access", cove.Unavailable},
	{"Out of memory", cove.TooLarge},
	{"out of memory", cove.TooLarge},
	{"mmap failed", cove.TooLarge},
}

// CodeOf returns the code of git's message in the C locale; Internal if it is unknown.
func CodeOf(said string) cove.Code {
	for _, w := range words {
		if strings.Contains(said, w.has) {
			return w.code
		}
	}
	return cove.Internal
}

// clean returns git's messages in a form that is safe for a terminal: without control characters, invalid runes, hints,
// and progress, whose states overwrite a line. Messages of a remote have the same form.
func clean(said string) string {
	var lines []string
	for line := range strings.Lines(said) {
		if i := strings.LastIndexByte(strings.TrimRight(line, "\r\n"), '\r'); i >= 0 {
			line = line[i+1:]
		}
		line = strings.Map(func(r rune) rune {
			if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
				return -1
			}
			return r
		}, line)
		line = strings.TrimPrefix(strings.TrimSpace(line), "fatal: ")
		heard, remote := strings.CutPrefix(line, "remote: ")
		if line != "" && !strings.HasPrefix(heard, "hint:") && !(remote && strings.HasSuffix(heard, ", done.")) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-8):], "; ")
}
