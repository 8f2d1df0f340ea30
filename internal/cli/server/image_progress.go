package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/image"
)

// progress shows how far an image is: a bar on a terminal, otherwise one line for each layer that is done.
type progress struct {
	sess  *session.Session
	bar   bool
	drawn time.Time
	parts map[progressPart]image.Event
	said  map[progressPart]bool
}

type progressPart struct {
	stage image.Stage
	layer int
}

func newProgress(sess *session.Session) *progress {
	return &progress{sess: sess, bar: ui.IsTerminal(sess.Err) && sess.Getenv("TERM") != "dumb",
		parts: map[progressPart]image.Event{}, said: map[progressPart]bool{}}
}

// take is an image.Progress.
func (p *progress) take(e image.Event) {
	part := progressPart{e.Stage, e.Layer}
	p.parts[part] = e
	if p.bar {
		p.draw()
		return
	}
	if e.Total > 0 && e.Done >= e.Total && !p.said[part] {
		p.said[part] = true
		p.sess.Say.Line("layer %d of %d: %s, %s", e.Layer+1, e.Layers, doneWord(e.Stage), ui.SizeText(e.Total))
	}
}

func doneWord(s image.Stage) string {
	if s == image.Unpack {
		return "unpacked"
	}
	return "downloaded"
}

// draw writes the bar over itself. The terminal may have another width by now.
func (p *progress) draw() {
	now := time.Now()
	if now.Sub(p.drawn) < ui.Redraw {
		return
	}
	p.drawn = now
	fmt.Fprint(p.sess.Err, "\r"+p.line(ui.Columns(p.sess.Err)-1)+"\x1b[K") // a full line would wrap
}

// line is the stage that is under way, all of its layers together.
func (p *progress) line(width int) string {
	if done, total := p.sum(image.Download); total < 0 || done < total {
		return barText("downloading", done, total, width)
	}
	done, total := p.sum(image.Unpack)
	return barText("unpacking", done, total, width)
}

// sum is how far a stage is, in bytes; the total is -1 when it is not known.
func (p *progress) sum(s image.Stage) (done, total int64) {
	for part, e := range p.parts {
		if part.stage != s {
			continue
		}
		done += e.Done
		if e.Total < 0 || total < 0 {
			total = -1
		} else {
			total += e.Total
		}
	}
	return done, total
}

// barText is one line of at most width columns: as much as fits of what is done, how far it is, a bar, and the sizes.
func barText(doing string, done, total int64, width int) string {
	if total <= 0 {
		return fit(width, doing+" "+ui.SizeText(done), doing)
	}
	const most, least = 30, 8
	done = min(done, total)
	head := fmt.Sprintf("%s %3d%%", doing, 100*done/total)
	sizes := fmt.Sprintf("%s of %s", ui.SizeText(done), ui.SizeText(total))
	if bar := min(most, width-len(head)-len(" [] ")-len(sizes)); bar >= least {
		full := int(int64(bar) * done / total)
		return fmt.Sprintf("%s [%s%s] %s", head, strings.Repeat("=", full), strings.Repeat(" ", bar-full), sizes)
	}
	return fit(width, head+" "+sizes, head, doing)
}

// fit is the first of texts that fits.
func fit(width int, texts ...string) string {
	for _, t := range texts {
		if len(t) <= width {
			return t
		}
	}
	return ""
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar {
		fmt.Fprint(p.sess.Err, "\r\x1b[K")
	}
}
