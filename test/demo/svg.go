package main

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove/internal/terminal"
)

// Measures of the picture, in its own units.
const (
	cellWidth  = 8.4
	cellHeight = 18
	padding    = 14
	barHeight  = 30
	background = "#11151c"
	foreground = "#d5dbe5"
)

// palette is the sixteen colours of a terminal.
var palette = [16]string{
	"#2b303b", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#abb2bf",
	"#7f8896", "#ef8891", "#b1d89a", "#f0d399", "#84c4f7", "#d79be8", "#7fd0da", "#ffffff",
}

// animate draws frames as an SVG that plays by itself, also as a picture of a
// Markdown page: no script, no font and no file from elsewhere.
func animate(frames []frame, s terminal.Size) []byte {
	total := frames[len(frames)-1].at.Seconds()
	width := float64(s.Columns)*cellWidth + 2*padding
	height := float64(s.Rows)*cellHeight + 2*padding + barHeight
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", width,
		height, width, height)
	b.WriteString("<title>cove claude mends a project in a sandbox, without a key inside</title>\n")
	fmt.Fprintf(&b,
		"<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans "+
			"Mono\",monospace;fill:%s;white-space:pre}\n", foreground)
	fmt.Fprintf(&b,
		".f{visibility:hidden;animation-duration:%.2fs;animation-iteration-count:infinite;animation-timing-function:step-end}\n", total)
	rows := map[string]int{} // lines that are the same are drawn once
	var shapes, shown strings.Builder
	for i, f := range frames[:len(frames)-1] {
		from, to := f.at.Seconds()/total*100, frames[i+1].at.Seconds()/total*100
		fmt.Fprintf(&b,
			"@keyframes k%d{0%%{visibility:%s}%.3f%%{visibility:visible}%.3f%%{visibility:hidden}}#f%d{animation-name:k%d}\n",
			i, map[bool]string{true: "visible", false: "hidden"}[i == 0], from, to, i, i)
		fmt.Fprintf(&shown, `<g class="f" id="f%d">`, i)
		for y, row := range drawnRows(f.screen, s.Rows) {
			if row == "" {
				continue
			}
			n, known := rows[row]
			if !known {
				n = len(rows)
				rows[row] = n
				fmt.Fprintf(&shapes, `<g id="r%d">%s</g>`+"\n", n, row)
			}
			fmt.Fprintf(&shown, `<use href="#r%d" y="%d"/>`, n, y*cellHeight)
		}
		shown.WriteString("</g>\n")
	}
	b.WriteString("</style>\n<defs>\n" + shapes.String() + "</defs>\n")
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" fill="%s"/>`+"\n", width, height, background)
	for i, color := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="5.5" fill="%s"/>`, 20+18*i, color)
	}
	fmt.Fprintf(&b, "\n<g transform=\"translate(%d %d)\">\n%s</g>\n</svg>\n", padding, padding+barHeight, shown.String())
	return []byte(b.String())
}

// drawnRows turns what Redraw draws into the SVG of each row; empty is blank.
func drawnRows(drawn []byte, rows int) []string {
	out := make([]string, rows)
	text := string(drawn)
	for y := range rows {
		begin := fmt.Sprintf("\x1b[%d;1H\x1b[0m", y+1)
		_, rest, found := strings.Cut(text, begin)
		if !found {
			continue
		}
		row := rest
		for _, end := range []string{fmt.Sprintf("\x1b[%d;1H\x1b[0m", y+2), "\x1b[K", "\x1b7", "\x1b[?"} {
			row, _, _ = strings.Cut(row, end)
		}
		out[y] = drawRow(row)
	}
	return out
}

// look is the style of a run of characters.
type look struct {
	fg, bg    string
	bold, dim bool
}

// drawRow is the SVG of one row of text with SGR.
func drawRow(row string) string {
	var b strings.Builder
	now, x := look{}, 0
	for row != "" {
		if rest, ok := strings.CutPrefix(row, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				break
			}
			if rest[end] == 'm' {
				now = restyle(now, rest[:end])
			}
			row = rest[end+1:]
			continue
		}
		if strings.HasPrefix(row, "\x1b(") && len(row) > 2 {
			row = row[3:]
			continue
		}
		text, rest := row, ""
		if i := strings.IndexByte(row[1:], 0x1b); i >= 0 {
			text, rest = row[:i+1], row[i+1:]
		}
		row = rest
		text = strings.Map(func(r rune) rune {
			if r < ' ' {
				return -1
			}
			return r
		}, text)
		if strings.TrimSpace(text) != "" || now.bg != "" {
			b.WriteString(drawRun(text, now, x))
		}
		x += utf8.RuneCountInString(text)
	}
	return b.String()
}

// drawRun is the SVG of characters of one style at column x.
func drawRun(text string, l look, x int) string {
	n := utf8.RuneCountInString(text)
	left, width := float64(x)*cellWidth, float64(n)*cellWidth
	out := ""
	if l.bg != "" {
		out = fmt.Sprintf(`<rect x="%.1f" y="0" width="%.1f" height="%d" fill="%s"/>`, left, width, cellHeight, l.bg)
	}
	attributes := ""
	if l.fg != "" {
		attributes += fmt.Sprintf(` style="fill:%s"`, l.fg)
	}
	if l.bold {
		attributes += ` font-weight="bold"`
	}
	if l.dim {
		attributes += ` opacity=".6"`
	}
	return out + fmt.Sprintf(`<text x="%.1f" y="13" textLength="%.1f" xml:space="preserve"%s>%s</text>`, left, width,
		attributes, html.EscapeString(text))
}

// restyle applies the parameters of one SGR.
func restyle(l look, params string) look {
	all := strings.Split(params, ";")
	for i := 0; i < len(all); i++ {
		n, _ := strconv.Atoi(all[i])
		switch {
		case n == 0:
			l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.dim = true
		case n >= 30 && n <= 37:
			l.fg = palette[n-30]
		case n >= 90 && n <= 97:
			l.fg = palette[n-90+8]
		case n >= 40 && n <= 47:
			l.bg = palette[n-40]
		case n >= 100 && n <= 107:
			l.bg = palette[n-100+8]
		case n == 38 || n == 48:
			color, used := direct(all[i+1:])
			if n == 38 {
				l.fg = color
			} else {
				l.bg = color
			}
			i += used
		}
	}
	return l
}

// direct reads the colour after 38 or 48, and says how many parameters it takes.
func direct(params []string) (color string, used int) {
	number := func(i int) int {
		if i >= len(params) {
			return 0
		}
		n, _ := strconv.Atoi(params[i])
		return n
	}
	switch number(0) {
	case 2:
		return fmt.Sprintf("#%02x%02x%02x", number(1), number(2), number(3)), 4
	case 5:
		return indexedColor(number(1)), 2
	}
	return "", 0
}

// indexedColor is one of a terminal's 256 colours.
func indexedColor(n int) string {
	switch {
	case n < 16:
		return palette[n]
	case n < 232:
		level := func(v int) int {
			if v == 0 {
				return 0
			}
			return 55 + 40*v
		}
		n -= 16
		return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
	}
	gray := 8 + 10*(n-232)
	return fmt.Sprintf("#%02x%02x%02x", gray, gray, gray)
}
