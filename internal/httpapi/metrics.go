package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/execution"
)

// metrics counts what passes the edge, in a registry of its own.
type metrics struct {
	registry   *prometheus.Registry
	executions *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	rejected   *prometheus.CounterVec
	security   *prometheus.CounterVec
	requests   *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	models     modelMetrics
}

// modelMetrics count what executions that have ended have used of models.
type modelMetrics struct {
	requests, tokens, cost *prometheus.CounterVec
}

func newModelMetrics() modelMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return modelMetrics{
		requests: counter("sandbox_model_requests_total",
			"Requests to models by executions that have ended, by provider.", "provider"),
		tokens: counter("sandbox_model_tokens_total", "Tokens used by executions that have ended, by provider and kind.",
			"provider", "kind"),
		cost: counter("sandbox_model_cost_dollars_total",
			"What they cost, as far as prices are known, by provider.", "provider"),
	}
}

// used counts an execution. Providers are those that are configured.
func (m modelMetrics) used(all []model.ProviderUsage) {
	for _, u := range all {
		m.requests.WithLabelValues(u.Provider).Add(float64(u.Requests))
		m.cost.WithLabelValues(u.Provider).Add(u.Cost)
		for kind, n := range map[string]int64{"input": u.Input, "output": u.Output, "cache_read": u.CacheRead,
			"cache_write": u.CacheWrite} {
			m.tokens.WithLabelValues(u.Provider, kind).Add(float64(n))
		}
	}
}

func newMetrics(e Executor, p Pool) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		models:   newModelMetrics(),
		executions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_executions_total",
			Help: "Executions that have ended, by language, engine and status."}, []string{"language", "engine", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sandbox_execution_duration_seconds",
			Help:    "Wall time of executions.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}, []string{"language"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_executions_rejected_total",
			Help: "Executions that were refused or failed before they had a result, by error code."}, []string{"code"}),
		security: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_security_events_total",
			Help: "Escape attempts noticed in submitted code, by rule and severity."}, []string{"rule", "severity"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sandbox_http_requests_total",
			Help: "HTTP requests, by route and status."}, []string{"route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sandbox_http_request_duration_seconds",
			Help: "Time until an HTTP request was answered whole.", Buckets: prometheus.DefBuckets}, []string{"route"}),
	}
	m.registry.MustRegister(m.requests, m.latency, m.models.requests, m.models.tokens, m.models.cost,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if e == nil {
		return m
	}
	m.registry.MustRegister(m.executions, m.durations, m.rejected, m.security,
		queueState{e}, engineState{e})
	if p != nil {
		m.registry.MustRegister(poolState{p})
	}
	return m
}

// execution counts one. Labels come from closed lists, so that callers cannot make the registry grow.
func (m *metrics) execution(language string, result execution.Result, err error, took time.Duration) {
	for _, e := range result.Events {
		m.security.WithLabelValues(e.Rule, string(e.Severity)).Inc()
	}
	m.models.used(result.Models)
	if err != nil {
		m.rejected.WithLabelValues(string(cove.ErrorCode(err))).Inc()
		return
	}
	m.executions.WithLabelValues(language, result.Engine, string(result.Status())).Inc()
	m.durations.WithLabelValues(language).Observe(took.Seconds())
}

func (m *metrics) request(ex *exchange, took time.Duration) {
	route := ex.pattern
	if route == "" {
		route = "other"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(ex.w.status)).Inc()
	m.latency.WithLabelValues(route).Observe(took.Seconds())
}

// queueState reads the queue when metrics are read.
type queueState struct{ Executor }

var (
	activeExecutions    = prometheus.NewDesc("sandbox_active_executions", "Executions that run now.", nil, nil)
	computingExecutions = prometheus.NewDesc("sandbox_computing_executions",
		"Executions of these that keep others waiting, of sandbox.max_computing.", nil, nil)
	queueDepth   = prometheus.NewDesc("sandbox_queue_depth", "Executions that wait for a place.", nil, nil)
	queueWaiting = prometheus.NewDesc("sandbox_queue_estimated_wait_seconds",
		"How long an execution would wait that came now, as it is estimated.", nil, nil)
	queueWaited = prometheus.NewDesc("sandbox_queue_wait_seconds", "How long executions waited that have begun.",
		nil, nil)
	queueRefused = prometheus.NewDesc("sandbox_queue_refused_total",
		"Executions that were refused a place: the line was full, its rest was for other callers (share), the estimated "+
			"wait was longer than the execution may wait (late), or it had waited for so long (timed).",
		[]string{"reason"}, nil)
)

func (queueState) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{activeExecutions, computingExecutions, queueDepth, queueWaiting, queueWaited,
		queueRefused} {
		ch <- d
	}
}

func (q queueState) Collect(ch chan<- prometheus.Metric) {
	load := q.Load()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(activeExecutions, float64(load.Running))
	gauge(computingExecutions, float64(load.Computing))
	gauge(queueDepth, float64(load.Waiting))
	gauge(queueWaiting, load.Wait.Seconds())
	all, buckets := uint64(0), map[float64]uint64{}
	for i, n := range load.Waits.Counts {
		if all += n; i < len(execution.WaitBounds) {
			buckets[execution.WaitBounds[i]] = all
		}
	}
	ch <- prometheus.MustNewConstHistogram(queueWaited, all, load.Waits.Sum.Seconds(), buckets)
	for reason, n := range load.Refused {
		ch <- prometheus.MustNewConstMetric(queueRefused, prometheus.CounterValue, float64(n), reason)
	}
}

// engineState asks each engine when metrics are read.
type engineState struct{ Executor }

var engineUp = prometheus.NewDesc("sandbox_engine_up", "Whether an engine can be used.", []string{"engine"}, nil)

func (engineState) Describe(ch chan<- *prometheus.Desc) { ch <- engineUp }

func (e engineState) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for name, state := range e.Health(ctx) {
		if state == engine.Unused {
			continue // it was never checked
		}
		up := 0.0
		if state == "ok" {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(engineUp, prometheus.GaugeValue, up, name)
	}
}
