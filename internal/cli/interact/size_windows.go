package interact

import (
	"context"
	"os"
	"sync"
	"time"
)

// notice stands for a signal that Windows has not.
type notice string

func (n notice) Signal()        {}
func (n notice) String() string { return string(n) }

const (
	sizeChanged notice = "the console has another size"
	continued   notice = "another program used the console"
)

// sizePoll is how soon a new size is seen: Windows tells of it among the console's input, which is read as text.
const sizePoll = 250 * time.Millisecond

// watchSize sends a notice when the size has changed, until ctx ends.
func watchSize(ctx context.Context, size func() (rows, columns int), to chan<- os.Signal, beside *sync.WaitGroup) {
	beside.Go(func() { pollSize(ctx, size, to) })
}

func pollSize(ctx context.Context, size func() (rows, columns int), to chan<- os.Signal) {
	ticks := time.NewTicker(sizePoll)
	defer ticks.Stop()
	rows, columns := size()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		r, c := size()
		if r == rows && c == columns {
			continue
		}
		rows, columns = r, c
		select {
		case to <- sizeChanged:
		case <-ctx.Done():
			return
		}
	}
}
