// Package meter owns the metrics of sandboxes' egress, in Prometheus's form, for every server with a gateway.
package meter

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

// maxHosts bounds the hosts with their own label; later ones are "other", so that a sandbox cannot make the registry
// grow.
const maxHosts = 200

// Meter counts decisions, and reads the state of a gateway when it is collected. It is a prometheus.Collector.
type Meter struct {
	decisions  *prometheus.CounterVec
	upstreams  *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	latency    prometheus.Histogram
	collectors []prometheus.Collector

	mu    sync.Mutex
	hosts map[string]bool // with a label
}

// Options are the sources of a Meter.
type Options struct {
	State func() gateway.State
	Lost  func() int64 // decisions that could not be recorded
}

// New returns a Meter.
func New(o Options) *Meter {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Meter{
		hosts: map[string]bool{},
		decisions: counter("sandbox_network_decisions_total",
			"Attempts to leave sandboxes, by verdict, way in and how far they came.",
			"verdict", "entry", "stage"),
		upstreams: counter("sandbox_network_upstream_total",
			"Requests and connections that were let out, by host and class of the answer's status.", "host", "status"),
		bytes: counter("sandbox_network_bytes_total", "Bytes that passed, of HTTP the bodies, by direction.", "direction"),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sandbox_network_request_duration_seconds",
			Help:    "Time until a request that was let out was answered whole.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}}),
	}
	gauge := func(name, help string, labels prometheus.Labels, f func(gateway.State) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 {
			return float64(f(o.State()))
		})
	}
	files := func(result string, of func(cache.Counts) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sandbox_network_packages_total",
			Help:        "Files of packages: served from the cache, added to it, not what an index states or damaged.",
			ConstLabels: prometheus.Labels{"result": result}}, func() float64 { return float64(of(o.State().Packages)) })
	}
	const circuits, aboutCircuits = "sandbox_network_circuits",
		"Upstreams of sandboxes that are left alone because they fail (open), or are being tried again (half_open)."
	m.collectors = []prometheus.Collector{
		m.decisions, m.upstreams, m.bytes, m.latency,
		gauge("sandbox_network_connections", "Connections of sandboxes to the gateway.", nil, func(s gateway.State) int {
			return s.Connections
		}),
		gauge("sandbox_network_holds", "Requests that wait for an approval.", nil, func(s gateway.State) int {
			return s.Holds
		}),
		gauge(circuits, aboutCircuits, prometheus.Labels{"state": "open"}, func(s gateway.State) int { return s.Open }),
		gauge(circuits, aboutCircuits, prometheus.Labels{"state": "half_open"}, func(s gateway.State) int {
			return s.HalfOpen
		}),
		files("served", func(c cache.Counts) int64 { return c.Served }),
		files("added", func(c cache.Counts) int64 { return c.Added }),
		files("mismatched", func(c cache.Counts) int64 { return c.Mismatched }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "sandbox_network_lost_decisions_total", Help: "Decisions that could not be recorded.",
		},
			func() float64 { return float64(o.Lost()) }),
	}
	return m
}

// Observe counts one decision of a gateway.Recorder.
func (m *Meter) Observe(d decision.Decision) {
	m.decisions.WithLabelValues(string(d.Verdict), string(d.Entry), string(d.Stage)).Add(float64(d.Count))
	m.bytes.WithLabelValues("sent").Add(float64(d.Sent))
	m.bytes.WithLabelValues("received").Add(float64(d.Received))
	if d.Verdict != decision.Allow || d.Entry == decision.EntryDNS || d.Stage == decision.StagePackages {
		return
	}
	m.upstreams.WithLabelValues(m.label(d.Host), class(d.Status)).Add(float64(d.Count))
	if d.Path != "" && d.Stage == decision.StageUpstream {
		m.latency.Observe(d.Duration)
	}
}

func (m *Meter) label(host string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.hosts[host] {
		if len(m.hosts) >= maxHosts {
			return "other"
		}
		m.hosts[host] = true
	}
	return host
}

// class returns 2xx and so on; "none" without an HTTP status.
func class(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors {
		c.Collect(ch)
	}
}
