package interact

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// keyWatch looks for the keys that detach.
type keyWatch struct {
	keys []byte
	seen int // how many of them were typed last, and are held back
}

// feed takes typed input. It returns the input to pass on, and reports whether the keys were in it.
func (w *keyWatch) feed(p []byte) (pass []byte, found bool) {
	if len(w.keys) == 0 {
		return p, false
	}
	for _, c := range p {
		if c == w.keys[w.seen] {
			if w.seen++; w.seen == len(w.keys) {
				w.seen = 0
				return pass, true
			}
			continue
		}
		// Of what was held back, a part may begin the keys anew.
		held := append(slices.Clone(w.keys[:w.seen]), c)
		w.seen = 0
		for len(held) > 0 && !bytes.HasPrefix(w.keys, held) {
			pass = append(pass, held[0])
			held = held[1:]
		}
		w.seen = len(held)
	}
	return pass, false
}

// parseKeys reads keys such as "ctrl-p,ctrl-q" or "ctrl-],q".
func parseKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	var keys []byte
	for _, k := range strings.Split(s, ",") {
		c, ctrl := strings.CutPrefix(strings.ToLower(k), "ctrl-")
		switch {
		case ctrl && len(c) == 1 && (c[0] >= 'a' && c[0] <= 'z' || strings.Contains(`@[\]^_`, c)):
			keys = append(keys, strings.ToUpper(c)[0]&0x1f)
		case !ctrl && len(k) == 1 && k[0] > ' ' && k[0] < 0x7f:
			keys = append(keys, k[0])
		default:
			return nil, cove.Errorf(cove.InvalidArgument, "--detach-keys: %q is not a key", k).
				WithHint("write keys such as ctrl-p,ctrl-q")
		}
	}
	return keys, nil
}
