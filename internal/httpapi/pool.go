package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/pool"
)

// Pool keeps sandboxes prepared; execution.Pool is one.
type Pool interface {
	Status() ([]pool.Status, pool.Totals)
	// Warm keeps n prepared for plain executions of a language. Errors: InvalidArgument, Unsupported, those of the engine.
	Warm(ctx context.Context, language string, n int) error
	Drain()
}

// poolRoutes serve the pool of prepared sandboxes.
type poolRoutes struct{ *edge }

func (s poolRoutes) add() {
	route(s, huma.Operation{OperationID: "get-pool", Method: http.MethodGet, Path: "/pool", Tags: []string{"system"},
		Summary: "Describe the sandboxes that are prepared",
		Description: "By what they are for, those first that were asked for last. A server learns from what is asked for " +
			"how many it keeps of each.",
	}, nil, s.get)

	route(s, huma.Operation{OperationID: "warm-pool", Method: http.MethodPut, Path: "/pool", Tags: []string{"system"},
		Summary:     "Keep sandboxes prepared for a language",
		Description: "For executions that ask for nothing but the language, until the pool is drained or the server ends.",
	}, []cove.Code{cove.InvalidArgument, cove.Unsupported, cove.Unavailable, cove.ImageMissing}, s.warm)

	route(s, huma.Operation{OperationID: "drain-pool", Method: http.MethodDelete, Path: "/pool", Tags: []string{"system"},
		DefaultStatus: http.StatusNoContent,
		Summary:       "Destroy the sandboxes that are prepared, and forget what was asked for",
	}, nil, s.drain)
}

// get is GET /pool.
func (s poolRoutes) get(context.Context, *struct{}) (*answer[api.Pool], error) {
	all, totals := s.Pool.Status()
	out := api.Pool{Kinds: make([]api.PoolKind, 0, len(all)), Hits: totals.Hits, Misses: totals.Misses,
		Failures: totals.Failures}
	for _, k := range all {
		out.Kinds = append(out.Kinds, api.PoolKind{Language: k.Key.Parked, Engine: k.Key.Engine, Image: k.Key.Image,
			MemoryMB: k.Key.Shape.Limits.Memory >> 20, CPUs: k.Key.Shape.Limits.CPUs, Size: k.Size, Ready: k.Ready,
			Memory: k.Memory, Hits: k.Hits, Misses: k.Misses, Failures: k.Failures})
	}
	return &answer[api.Pool]{out}, nil
}

type warmInput struct{ Body api.PoolWarm }

// warm is PUT /pool.
func (s poolRoutes) warm(ctx context.Context, in *warmInput) (*answer[api.Pool], error) {
	if err := s.Pool.Warm(ctx, in.Body.Language, in.Body.Count); err != nil {
		return nil, err
	}
	return s.get(ctx, nil)
}

// drain is DELETE /pool.
func (s poolRoutes) drain(context.Context, *struct{}) (*struct{}, error) {
	s.Pool.Drain()
	return nil, nil
}

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
