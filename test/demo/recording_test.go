package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/terminal"
)

// TestAnimate draws a screen with colours and reads the SVG back.
func TestAnimate(t *testing.T) {
	size := terminal.Size{Columns: 20, Rows: 3}
	screen := terminal.New(size)
	var frames []frame
	for i, text := range []string{"$ ", "cove \x1b[1;32m<run>\x1b[0m", "\r\n\x1b[48;5;196;2mred\x1b[0m", ""} {
		screen.Write([]byte(text))
		frames = append(frames, frame{at: time.Duration(i) * time.Second, screen: screen.Redraw(size, false)})
	}
	svg := string(animate(frames, size))
	for _, want := range []string{"&lt;run&gt;", palette[2], `font-weight="bold"`, "#ff0000", `animation-duration:3.00s`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the SVG lacks %q:\n%s", want, svg)
		}
	}
	if strings.Count(svg, `class="f"`) != len(frames)-1 {
		t.Errorf("want %d frames:\n%s", len(frames)-1, svg)
	}
	wellFormed(t, svg)
}

// TestRecordingIsReal looks at the recording that README shows.
func TestRecordingIsReal(t *testing.T) {
	svg, err := os.ReadFile("../../docs/recording.svg")
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(svg))
	for _, want := range []string{"set-by-the-gateway", "no rule allows elsewhere.example", "claude has done it",
		"git diff --stat"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the recording lacks %q; \"make recording\" makes it anew", want)
		}
	}
	if strings.Contains(string(svg), "key-") {
		t.Error("the recording shows a key")
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
