package httpapi

import "github.com/prometheus/client_golang/prometheus"

// poolState asks the pool when metrics are read.
type poolState struct{ Pool }

var (
	poolSize      = prometheus.NewDesc("sandbox_pool_size", "Prepared sandboxes that are worth keeping.", nil, nil)
	poolAvailable = prometheus.NewDesc("sandbox_pool_available", "Sandboxes that are prepared.", nil, nil)
	poolMemory    = prometheus.NewDesc("sandbox_pool_memory_bytes", "Memory of the sandboxes that are prepared.", nil, nil)
	poolAcquired  = prometheus.NewDesc("sandbox_pool_acquire_total",
		"Executions that could have a prepared sandbox, by whether one was there.", []string{"result"}, nil)
	poolSeconds = prometheus.NewDesc("sandbox_pool_acquire_seconds", "Time that they waited for the pool.", nil, nil)
	poolFailed  = prometheus.NewDesc("sandbox_pool_refill_failures_total", "Sandboxes that could not be prepared.", nil,
		nil)
)

func (poolState) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolSize, poolAvailable, poolMemory, poolAcquired, poolSeconds, poolFailed} {
		ch <- d
	}
}

func (p poolState) Collect(ch chan<- prometheus.Metric) {
	all, totals := p.Status()
	var size, ready, memory float64
	for _, k := range all {
		size, ready, memory = size+float64(k.Size), ready+float64(k.Ready), memory+float64(k.Memory)
	}
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(poolSize, size)
	gauge(poolAvailable, ready)
	gauge(poolMemory, memory)
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	counter(poolAcquired, totals.Hits, "hit")
	counter(poolAcquired, totals.Misses, "miss")
	counter(poolFailed, totals.Failures)
	ch <- prometheus.MustNewConstSummary(poolSeconds, uint64(totals.Hits+totals.Misses), totals.Waited.Seconds(), nil)
}
