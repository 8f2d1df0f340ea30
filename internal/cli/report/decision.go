package report

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// DecisionLine is one line for those who follow: the cells of the table in columns that fit most.
func DecisionLine(d api.Decision) string {
	widths := []int{20, 29, 7, 48, 6, 6, 8, 6, 0}
	var b strings.Builder
	for i, cell := range DecisionCells(d) {
		fmt.Fprintf(&b, "%-*s  ", widths[i], ui.Printable(cell))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func DecisionCells(d api.Decision) []string {
	verdict, status := string(d.Verdict), ""
	if d.Count > 1 {
		verdict += " x" + strconv.FormatInt(d.Count, 10)
	}
	if d.Status != 0 {
		status = strconv.Itoa(d.Status)
	}
	took := ""
	if d.Duration > 0 {
		took = ui.TimeText(time.Duration(d.Duration * float64(time.Second)))
	}
	return []string{d.Time.UTC().Format(time.RFC3339), d.Execution, verdict, Attempt(d), status, some(d.Sent),
		some(d.Received), took, why(d)}
}

// some is a number of bytes, if there are any.
func some(n int64) string {
	if n == 0 {
		return ""
	}
	return ui.SizeText(n)
}

// Attempt describes the attempt that a decision is about: GET https://api.example.com/v1,
// lookup A api.example.com, tcp://git.example.com:22.
func Attempt(d api.Decision) string {
	switch {
	case d.Verdict == api.VerdictLost:
		return ""
	case d.Entry == api.EntryDNS:
		return "lookup " + d.Method + " " + d.Host
	}
	protocol := d.Protocol
	if protocol == "" { // it was denied before it spoke
		protocol = api.ProtocolTCP
	}
	host := d.Host
	if port := (map[api.Protocol]uint16{api.ProtocolHTTP: 80, api.ProtocolHTTPS: 443})[protocol]; port != d.Port {
		host = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text := string(protocol) + "://" + host + d.Path
	if d.Method != "" {
		text = d.Method + " " + text
	}
	return text
}

// why returns the reason of a denial or an error, and the command that would allow the request.
func why(d api.Decision) string {
	var parts []string
	for _, p := range []string{d.Reason, d.Remedy} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	text := strings.Join(parts, "; to allow it: ")
	if d.Verdict == api.VerdictDeny && d.Rule != "" {
		return "(" + d.Rule + ") " + text
	}
	return d.Reason
}

// RequestOf describes the request that waits: "POST api.example.com:443/v1/items".
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

// HoldText describes the request that waits and the reason, in one line.
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
