package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pictures has a chart of each kind, with the texts that it must show.
func pictures() map[string]struct {
	chart Chart
	texts []string
} {
	nan := math.NaN()
	return map[string]struct {
		chart Chart
		texts []string
	}{
		"ranges": {Ranges("First command", "ms, p50 to p99", []Range{{Name: "cove", Low: 4, Mid: 4.31, High: 9, Strong: true},
			{Name: "docker", Low: 180, Mid: 217, High: 400}, {Name: "one sample", Low: 30, Mid: 30, High: 30}}),
			[]string{"First command", "ms, p50 to p99", "cove", "docker", "one sample", "4.31 … 9",
				"217 … 400", "30", "10", "100"}},
		"bars": {Bars("One-liners", "ms", []string{"python", "node"}, []Series{{Name: "cold", Values: []float64{23.5, 41}},
			{Name: "parked", Values: []float64{1.5, nan}}}),
			[]string{"One-liners", "ms", "python", "node", "cold", "parked", "23.5", "41", "1.5"}},
		"lines": {Lines("Sustained", "clients", "runs/s", true, []Series{
			{Name: "cove", X: []float64{1, 2, 8, 32}, Values: []float64{40, 55, 60, nan}},
			{Name: "plain process", X: []float64{1, 2, 8, 32}, Values: []float64{70, 130, 140, 141}, Muted: true}}),
			[]string{"Sustained", "clients", "runs/s", "cove", "plain process", "32"}},
	}
}

// TestWrite: every chart is well-formed SVG, says what its axes, units and series are, and brings its own ground.
func TestWrite(t *testing.T) {
	for name, c := range pictures() {
		var out bytes.Buffer
		if err := c.chart.Write(&out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if dir := os.Getenv("COVE_TEST_CHARTS"); dir != "" { // to look at them
			if err := os.WriteFile(filepath.Join(dir, name+".svg"), out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		shown, ground := read(t, name, &out)
		for _, want := range c.texts {
			if !shown[want] {
				t.Errorf("%s does not show %q: %v", name, want, shown)
			}
		}
		if !ground {
			t.Errorf("%s has no ground", name)
		}
	}
}

// read returns the texts of a picture, and whether it is white up to its edges.
func read(t *testing.T, name string, out io.Reader) (shown map[string]bool, ground bool) {
	t.Helper()
	shown = map[string]bool{}
	for d := xml.NewDecoder(out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return shown, ground
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch token := token.(type) {
		case xml.CharData:
			shown[strings.TrimSpace(string(token))] = true
		case xml.StartElement:
			whole, white := false, false
			for _, a := range token.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s: %s=%q of %s", name, a.Name.Local, a.Value, token.Name.Local)
				}
				whole = whole || a.Name.Local == "d" && strings.HasPrefix(a.Value, "M0,0L566.93,0L")
				white = white || a.Name.Local == "style" && strings.Contains(a.Value, "fill:#FFFFFF")
			}
			ground = ground || whole && white
		}
	}
}

// TestWriteFails: what cannot be drawn is an error.
func TestWriteFails(t *testing.T) {
	if err := Lines("Empty", "x", "y", false, []Series{{Name: "nothing"}}).Write(io.Discard); err == nil {
		t.Error("a line without points was drawn")
	}
}
