package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

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

// AppliedText reports how many files were changed.
func AppliedText(n int, dir string) string {
	text, them := fmt.Sprintf("%d files of %s are changed", n, dir), "them"
	if n == 1 {
		text, them = fmt.Sprintf("1 file of %s is changed", dir), "it"
	}
	if flags.RepositoryTop(dir) == "" {
		return text
	}
	return text + "; \"git diff\" there shows " + them
}
