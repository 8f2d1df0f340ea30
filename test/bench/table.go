//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// Cell is what one of them did in one row.
type Cell struct {
	Row     string    `json:"row"`
	Name    string    `json:"name"`
	Skipped string    `json:"skipped,omitempty"`
	Samples []float64 `json:"samples,omitempty"`
	P50     float64   `json:"p50,omitempty"`
	Added   *float64  `json:"added,omitempty"` // p50 less that of direct, where it is what counts
	Ratio   float64   `json:"ratio_to_cove,omitempty"`
	Met     *bool     `json:"target_met,omitempty"`
}

// row is one of the table of the network.
type row struct {
	name   string
	target float64 // of Cove's; 0 if there is none
	least  bool    // the target is a minimum
	added  bool    // what counts is what is added to the same without a gateway
	inside string  // the row of whose samples this is one, of sandboxes alone; empty if it has its own
}

func rows() (all []row) {
	for _, m := range measures {
		all = append(all, row{name: m.name, target: m.target, least: m.least, added: m.added})
		if m.ask.Do == doNew {
			all = append(all, row{name: strings.Replace(m.name, ": ms", " from a sandbox: ms", 1), target: m.target, added: true,
				inside: m.name})
		}
		if m.cpu() != "" {
			cpu := row{name: m.cpu()}
			if m.target > 0 && m.least { // as many as one processor can do in a second
				cpu.target = 1e6 / m.target
			}
			all = append(all, cpu)
		}
	}
	return append(all, row{name: rowIdle, target: targetIdleMiB}, row{name: rowSpread, target: targetIdleMiB},
		row{name: rowSetUp, target: targetSetUpMS, added: true})
}

// rows are those that were asked for.
func (n *network) rows() []row {
	return slices.DeleteFunc(rows(), func(r row) bool { return !n.asked(r.name) })
}

// table is what has been measured, by rows, with everybody in each.
func (n *network) table() [][]Cell {
	var all [][]Cell
	for _, r := range n.rows() {
		var cells []Cell
		for _, b := range n.all {
			c := Cell{Row: r.name, Name: b.name, Skipped: b.why, Samples: n.samples[[2]string{r.name, b.name}]}
			if r.inside != "" && (b.name == directInside || b.name == coveInside) {
				c.Samples = n.samples[[2]string{r.inside, b.name}]
			}
			c.P50 = median(c.Samples)
			cells = append(cells, c)
		}
		r.judge(cells)
		all = append(all, cells)
	}
	return all
}

func median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(samples))[len(samples)/2]
}

// judge compares the cells of a row.
func (r row) judge(cells []Cell) {
	find := func(name string) *Cell {
		return &cells[slices.IndexFunc(cells, func(c Cell) bool { return c.Name == name })]
	}
	nobody := direct
	if r.inside != "" {
		nobody = directInside
	}
	base := find(nobody).P50
	for i := range cells {
		c := &cells[i]
		// The way out alone is made without a sandbox.
		if r.added && len(c.Samples) > 0 && c.Name != nobody && !(r.name == rowSetUp && c.Name == coveLoopback) {
			added := c.P50 - base
			c.Added = &added
		}
		if r.target > 0 && len(c.Samples) > 0 && (c.Name == coveInside || c.Name == coveLoopback) {
			met := c.counts() <= r.target
			if r.least {
				met = c.counts() >= r.target
			}
			c.Met = &met
		}
	}
	for i := range cells {
		if cove := find(coveLoopback).counts(); cove > 0 && len(cells[i].Samples) > 0 {
			cells[i].Ratio = cells[i].counts() / cove
		}
	}
}

// counts is the figure that counts.
func (c Cell) counts() float64 {
	if c.Added != nil {
		return *c.Added
	}
	return c.P50
}

func (c Cell) String() string {
	switch {
	case len(c.Samples) == 0:
		return "-"
	case c.Name == direct || c.Name == directInside && c.Added == nil:
		return figure(c.P50)
	case c.Ratio == 0:
		return "+" + figure(c.counts())
	}
	s := figure(c.counts())
	if c.Added != nil {
		s = "+" + s
	}
	return fmt.Sprintf("%s %6s", s, figure(c.Ratio)+"×")
}

// figure has about three digits.
func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// target is what Cove is to reach, and whether it does.
func (r row) verdict(cells []Cell) string {
	if r.target == 0 {
		return ""
	}
	sign := "≤ "
	if r.least {
		sign = "≥ "
	}
	verdict := "met"
	for _, c := range cells {
		if c.Met != nil && !*c.Met {
			verdict = "missed"
		}
	}
	return sign + figure(r.target) + " " + verdict
}

func (n *network) print(table [][]Cell) {
	fmt.Printf("\nthe network: a gateway between a client and an origin, TLS on both sides, answers of 1 KiB\n")
	fmt.Printf("%-55s %-13s", "", "target")
	for _, b := range n.all {
		fmt.Printf(" %19s", b.name)
	}
	for i, r := range n.rows() {
		fmt.Printf("\n%-55s %-13s", r.name, r.verdict(table[i]))
		for _, c := range table[i] {
			fmt.Printf(" %19s", c)
		}
	}
	fmt.Println()
	for _, b := range n.all {
		if b.why != "" {
			fmt.Printf("  %s: %s\n", b.name, b.why)
		}
	}
	fmt.Println("  " + strings.ReplaceAll(networkNote, "\n", "\n  "))
}

const networkNote = `medians, and ratios to "cove, on loopback"; + is what is added to "direct"
who is measured has one processor for itself; the client and the origin share another. Direct, it is the origin's
direct, in a sandbox: the client is in a sandbox like Cove's, with its origin and a DNS server, and looks names up there
cove, in a sandbox: the client is in a sandbox and knows of no proxy; it looks names up, too. The server is measured with
what it does for the sandbox beside. cove, on loopback, and mitmproxy: the client asks a proxy to CONNECT.
Go reverse proxy: net/http/httputil, one certificate for all hosts; it resolves and checks nothing
new host from a sandbox: the same, and + is what is added to "direct, in a sandbox"
new host: from the first look for a name that nobody has asked for to the end of the answer
setting up a network: what it adds to an execution of sh through the API; on loopback, the gateway's part of it alone`
