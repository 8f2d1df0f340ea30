package run

import (
	"testing"
	"time"
)

// SetRefusalGrace changes how long an agent whose models refuse its credential may go on, for one test.
func SetRefusalGrace(t *testing.T, d time.Duration) {
	was := refusalGrace
	refusalGrace = d
	t.Cleanup(func() { refusalGrace = was })
}

// SizesOf is what the files of runs take.
var SizesOf = sizesOf
