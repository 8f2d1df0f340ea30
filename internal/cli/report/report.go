// Package report owns the words in which the command line tells what became of
// executions, connections and work, for all rooms that show them.
package report

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/store"
)

// Verdict describes in one line what ended an execution from outside, and which flag changes it. It is empty when the
// program ended by itself. The numbers are those of the record.
func Verdict(e api.Execution) string {
	used := inForce(e.Limits, e.Timeout)
	switch cove.LimitKind(e.LimitHit) {
	case cove.LimitTimeout:
		return Stopped("out of time", positive(int64(used.Timeout), ui.TimeText(used.Timeout)), "--timeout")
	case cove.LimitOOM:
		return Stopped("out of memory", positive(used.Memory, ui.SizeText(used.Memory)), "--memory")
	case cove.LimitPIDs:
		return Stopped("too many processes", positive(used.PIDs, fmt.Sprint(used.PIDs)), "--pids")
	case cove.LimitDisk:
		known := positive(used.Disk, ui.SizeText(used.Disk))
		if known != "" && used.Inodes > 0 {
			known += fmt.Sprintf(" and %d files", used.Inodes)
		}
		return Stopped("disk full", known, "--disk or --inodes")
	case cove.LimitFileSize:
		return Stopped("a file became too large", positive(used.Disk, ui.SizeText(used.Disk)), "--disk")
	case cove.LimitLocks:
		return "stopped: too many locks of files"
	case cove.LimitOutput:
		return Stopped("too much output", keptText(used), "--stdout-limit or --stderr-limit")
	}
	switch e.Status {
	case api.StatusTimeout:
		return Stopped("out of time", positive(int64(used.Timeout), ui.TimeText(used.Timeout)), "--timeout")
	case api.StatusKilled:
		return "stopped: killed"
	case api.StatusShutdown:
		return "stopped: " + e.Error
	case api.StatusFailed:
		return "failed: " + e.Error
	case api.StatusRefused:
		return "refused: " + e.Error
	}
	return ""
}

func Stopped(why, limit, flag string) string {
	if limit == "" {
		return fmt.Sprintf("stopped: %s (raise the limit with %s)", why, flag)
	}
	return fmt.Sprintf("stopped: %s (limit %s; raise it with %s)", why, limit, flag)
}

func positive(n int64, text string) string {
	if n <= 0 {
		return ""
	}
	return text
}

func keptText(used cove.Limits) string {
	if used.Stdout <= 0 || used.Stderr <= 0 {
		return ""
	}
	return fmt.Sprintf("%s of output, %s of errors", ui.SizeText(used.Stdout), ui.SizeText(used.Stderr))
}

// Truncation reports that output was dropped.
func Truncation(e api.Execution) string {
	if !e.Truncated || cove.LimitKind(e.LimitHit) == cove.LimitOutput {
		return ""
	}
	if kept := keptText(inForce(e.Limits, e.Timeout)); kept != "" {
		return fmt.Sprintf("output was cut (limit %s; raise it with --stdout-limit or --stderr-limit)", kept)
	}
	return "output was cut (raise the limit with --stdout-limit or --stderr-limit)"
}

// History reports what the history lacks of an execution.
func History(e api.Execution) string {
	switch {
	case e.Unrecorded:
		return "the history does not have this result yet: the server could not write it, and its log says why"
	case e.OutputGone == string(store.GoneStorageFull):
		return "its output was not kept: there was no room for it when it ended"
	case e.OutputGone == string(store.GoneHistorySize):
		return "its output was removed, to bound the size of the history (history.max_mb)"
	}
	return ""
}

// RunHistory reports what the history lacks of a run.
func RunHistory(r api.Run) string {
	switch {
	case r.Unrecorded:
		return "the history does not have this end yet: the server could not write it, and its log says why"
	case r.OutputGone != "":
		return "its messages and recordings were removed, to bound the size of the history (history.max_mb)"
	case r.Cut:
		return "there was no room for all of its record: the answer is cut short, or changes are missing"
	}
	return ""
}

// inForce are the limits that a record says were in force; zero where it says none.
func inForce(l *api.Limits, timeout float64) cove.Limits {
	if l == nil {
		l = &api.Limits{}
	}
	used := apispec.Limits(*l)
	used.Timeout = apispec.Duration(api.Seconds(timeout))
	return used
}

// DecisionLine is one line for those who follow: the cells of the table in columns that fit most.
func DecisionLine(d api.Decision) string {
	widths := []int{20, 29, 7, 48, 6, 6, 8, 6, 0}
	var b strings.Builder
	for i, cell := range DecisionCells(d) {
		fmt.Fprintf(&b, "%-*s  ", widths[i], ui.Printable(cell))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func DecisionCells(d api.Decision) []string {
	verdict, status := string(d.Verdict), ""
	if d.Count > 1 {
		verdict += " x" + strconv.FormatInt(d.Count, 10)
	}
	if d.Status != 0 {
		status = strconv.Itoa(d.Status)
	}
	took := ""
	if d.Duration > 0 {
		took = ui.TimeText(time.Duration(d.Duration * float64(time.Second)))
	}
	return []string{d.Time.UTC().Format(time.RFC3339), d.Execution, verdict, Attempt(d), status, some(d.Sent),
		some(d.Received), took, why(d)}
}

func some(n int64) string {
	if n == 0 {
		return ""
	}
	return ui.SizeText(n)
}

// Attempt describes the attempt that a decision is about: GET https://api.example.com/v1,
// lookup A api.example.com, tcp://git.example.com:22.
func Attempt(d api.Decision) string {
	switch {
	case d.Verdict == api.VerdictLost:
		return ""
	case d.Entry == api.EntryDNS:
		return "lookup " + d.Method + " " + d.Host
	}
	protocol := d.Protocol
	if protocol == "" { // it was denied before it spoke
		protocol = api.ProtocolTCP
	}
	host := d.Host
	if port := (map[api.Protocol]uint16{api.ProtocolHTTP: 80, api.ProtocolHTTPS: 443})[protocol]; port != d.Port {
		host = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text := string(protocol) + "://" + host + d.Path
	if d.Method != "" {
		text = d.Method + " " + text
	}
	return text
}

// why returns the reason of a denial or an error, and the command that would allow the request.
func why(d api.Decision) string {
	var parts []string
	for _, p := range []string{d.Reason, d.Remedy} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	text := strings.Join(parts, "; to allow it: ")
	if d.Verdict == api.VerdictDeny && d.Rule != "" {
		return "(" + d.Rule + ") " + text
	}
	return d.Reason
}

// RequestOf describes the request that waits: "POST api.example.com:443/v1/items".
func RequestOf(h api.Hold) string {
	text := net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) + h.Path
	if h.Method != "" {
		text = h.Method + " " + text
	}
	if h.Address != "" {
		text += " at " + h.Address
	}
	return text
}

// HoldText describes the request that waits and the reason, in one line.
func HoldText(h api.Hold) string {
	text := RequestOf(h)
	if h.Count > 1 {
		text += fmt.Sprintf(" (and %d more)", h.Count-1)
	}
	return text + ": " + h.Reason + " (" + h.Rule + ")"
}

func LeftText(h api.Hold, now time.Time) string {
	return max(0, h.Until.Sub(now)).Round(time.Second).String()
}

// PatchWriter writes a patch for a terminal, line by line.
type PatchWriter struct {
	To    io.Writer
	Color bool
	part  []byte // of a line
}

func (w *PatchWriter) Write(p []byte) (int, error) {
	w.part = append(w.part, p...)
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 && len(w.part) < maxPatchLine {
			return len(p), nil
		}
		if i < 0 {
			i = maxPatchLine - 1
		}
		if err := w.line(string(w.part[:i])); err != nil {
			return 0, err
		}
		w.part = w.part[i+1:]
	}
}

func (w *PatchWriter) Close() error {
	if len(w.part) == 0 {
		return nil
	}
	return w.line(string(w.part))
}

func (w *PatchWriter) line(text string) error {
	color := ""
	switch {
	case strings.HasPrefix(text, "diff "), strings.HasPrefix(text, "index "),
		strings.HasPrefix(text, "+++ "), strings.HasPrefix(text, "--- "):
		color = ui.Bold
	case strings.HasPrefix(text, "@@"):
		color = ui.Cyan
	case strings.HasPrefix(text, "commit "):
		color = ui.Yellow
	case strings.HasPrefix(text, "+"):
		color = ui.Green
	case strings.HasPrefix(text, "-"):
		color = ui.Red
	}
	cells := strings.Split(text, "\t")
	for i := range cells {
		cells[i] = ui.Printable(cells[i])
	}
	text = strings.Join(cells, "\t")
	if color != "" {
		text = ui.Paint(w.Color, color, text)
	}
	_, err := io.WriteString(w.To, text+"\n")
	return err
}

// maxPatchLine is how much of a line is kept until its end comes, in bytes.
const maxPatchLine = 64 << 10

// AppliedText reports how many files were changed, and the command of git that shows all of them: "git diff" leaves out
// those that git does not track.
func AppliedText(changes []api.WorkChange, dir string) string {
	text, them := fmt.Sprintf("%d files of %s are changed", len(changes), dir), "them"
	if len(changes) == 1 {
		text, them = fmt.Sprintf("1 file of %s is changed", dir), "it"
	}
	if flags.RepositoryTop(dir) == "" {
		return text
	}
	command := "git diff"
	untracked := func(c api.WorkChange) bool { return c.Change == "added" || c.Change == "renamed" }
	if slices.ContainsFunc(changes, untracked) {
		command = "git status"
	}
	return fmt.Sprintf("%s; %q there shows %s", text, command, them)
}

// Deciding returns a line that names the files which apply asks about, for a caller who fetches them instead.
func Deciding(changes []api.WorkChange) []string {
	paths, names := map[string]bool{}, []string(nil)
	for _, c := range changes {
		for p := c.Path; c.Change != "deleted" && !paths[p]; p = path.Dir(p) {
			paths[p] = true
		}
	}
	for _, c := range changes {
		mode := map[bool]git.Mode{true: git.Symlink, false: git.File}[c.NewMode == "120000"]
		if (git.Change{Path: c.Path, Mode: mode}).In(git.Asked) ||
			git.InGitDirectory(c.Path, func(p string) bool { return paths[p] }) {
			names = append(names, ui.Printable(c.Path))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"the work changes what others run, or your next command: look at it before you check it out: " +
		strings.Join(names, ", ")}
}

// AppliedNotes is AppliedText, and a line that names the files which run once the person builds, installs or opens the
// project.
func AppliedNotes(changes []api.WorkChange, dir string) []string {
	notes, built := []string{AppliedText(changes, dir)}, []string(nil)
	for _, c := range changes {
		if c.Change != "deleted" && (git.Change{Path: c.Path}).In(git.Built) {
			built = append(built, ui.Printable(c.Path))
		}
	}
	if len(built) > 0 {
		notes = append(notes, "once you build, install or open the project, these run or are obeyed: "+
			strings.Join(built, ", "))
	}
	return notes
}

// Cache reports whether a path is that of a file which programs make for themselves, and which no user reads.
func Cache(name string) bool {
	parts := strings.Split(name, "/")
	base := parts[len(parts)-1]
	for _, dir := range parts[:len(parts)-1] {
		if slices.Contains(cacheDirectories, dir) {
			return true
		}
	}
	return slices.Contains(cacheFiles, base) || slices.Contains(cacheEndings, path.Ext(base))
}

var (
	cacheDirectories = []string{"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", ".cache",
		".gradle", ".parcel-cache", ".turbo", ".ipynb_checkpoints", "node_modules"}
	cacheFiles   = []string{".DS_Store", ".eslintcache", ".coverage", "Thumbs.db"}
	cacheEndings = []string{".pyc", ".pyo", ".class", ".o", ".swp", ".tsbuildinfo"}
)

// Unread names the changed files that a patch does not show to a reader: binary ones and caches, a line for each kind.
func Unread(changes []api.WorkChange) (lines []string) {
	var binary, caches []string
	for _, c := range changes {
		switch {
		case c.Change == "deleted":
		case Cache(c.Path):
			caches = append(caches, c.Path)
		case c.Binary:
			binary = append(binary, c.Path)
		}
	}
	for _, of := range []struct {
		what  string
		names []string
	}{{"binary, which the diff does not show", binary}, {"caches, which programs read as their own", caches}} {
		if n := len(of.names); n > mostUnread {
			of.names = append(of.names[:mostUnread], fmt.Sprintf("and %d more", n-mostUnread))
		}
		if len(of.names) > 0 {
			lines = append(lines, of.what+": "+strings.Join(of.names, ", "))
		}
	}
	return lines
}

// mostUnread is how many such files a line names.
const mostUnread = 8

// MadeNotes returns the notes about what sandboxes have made in mounts.
func MadeNotes(all []api.Made) (notes []string) {
	for _, m := range all {
		notes = append(notes, "note: "+m.Detail)
	}
	return notes
}
