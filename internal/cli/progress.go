package cli

import (
	"fmt"

	"github.com/schollz/progressbar/v3"

	"github.com/cove-sandbox/cove/internal/image"
)

// progress shows how far an image is: a bar on a terminal, otherwise one line
// for each layer that is done.
type progress struct {
	a     *app
	bar   *progressbar.ProgressBar // nil without a terminal
	parts map[progressPart]image.Event
	said  map[progressPart]bool
}

type progressPart struct {
	stage image.Stage
	layer int
}

func (a *app) newProgress() *progress {
	p := &progress{a: a, parts: map[progressPart]image.Event{}, said: map[progressPart]bool{}}
	if isTerminal(a.Err) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(a.Err), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100_000_000), progressbar.OptionClearOnFinish(),
			progressbar.OptionSpinnerType(14), progressbar.OptionEnableColorCodes(false))
	}
	return p
}

// take is an image.Progress.
func (p *progress) take(e image.Event) {
	part := progressPart{e.Stage, e.Layer}
	p.parts[part] = e
	if p.bar != nil {
		p.draw(e)
		return
	}
	if e.Total > 0 && e.Done >= e.Total && !p.said[part] {
		p.said[part] = true
		p.a.say.line("layer %d of %d: %s, %s", e.Layer+1, e.Layers, doneWord(e.Stage), sizeText(e.Total))
	}
}

func doneWord(s image.Stage) string {
	if s == image.Unpack {
		return "unpacked"
	}
	return "downloaded"
}

// draw shows all layers together.
func (p *progress) draw(e image.Event) {
	var done, total int64
	known := true
	for _, part := range p.parts {
		done += part.Done
		total += part.Total
		known = known && part.Total >= 0
	}
	if !known {
		total = -1
	}
	p.bar.Describe(fmt.Sprintf("%s layer %d of %d", e.Stage, e.Layer+1, e.Layers))
	p.bar.ChangeMax64(total)
	p.bar.Set64(min(done, max(total-1, 0))) // full would end it, and more may come
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.Clear()
	}
}
