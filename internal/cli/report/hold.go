package report

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/cove-sandbox/cove/api"
)

// RequestOf is what waits: "POST api.example.com:443/v1/items".
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

// HoldText is what waits and why, in one line.
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
