package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// poolRoutes serve the pool of prepared sandboxes.
type poolRoutes struct{ *edge }

func (s poolRoutes) add() {
	route(s, huma.Operation{OperationID: "get-pool", Method: http.MethodGet, Path: "/pool", Tags: []string{"system"},
		Summary: "Describe the sandboxes that are prepared",
		Description: "By what they are for, those first that were asked for last. A server learns from what is asked for " +
			"how many it keeps of each.",
	}, nil, s.get)

	route(s, huma.Operation{OperationID: "warm-pool", Method: http.MethodPut, Path: "/pool", Tags: []string{"system"},
		Summary: "Keep sandboxes prepared for a language",
		Description: "For executions that ask for nothing but the language, and perhaps an image, until the pool is " +
			"drained or the server ends.",
	}, []cove.Code{cove.InvalidArgument, cove.Unsupported, cove.Unavailable, cove.ImageMissing}, s.warm)

	route(s, huma.Operation{OperationID: "drain-pool", Method: http.MethodDelete, Path: "/pool", Tags: []string{"system"},
		DefaultStatus: http.StatusNoContent,
		Summary:       "Destroy the sandboxes that are prepared, and forget what was asked for",
		Description:   "The answer comes when they are gone.",
	}, []cove.Code{cove.Unavailable}, s.drain)
}

// get is GET /pool.
func (s poolRoutes) get(context.Context, *struct{}) (*answer[api.Pool], error) {
	all, totals := s.Pool.Status()
	out := api.Pool{Kinds: make([]api.PoolKind, 0, len(all)), Hits: totals.Hits, Misses: totals.Misses,
		Failures: totals.Failures}
	for _, k := range all {
		out.Kinds = append(out.Kinds, api.PoolKind{Language: k.Key.Parked, Engine: k.Key.Engine, Image: k.Key.Image,
			MemoryMB: k.Key.Shape.Limits.Memory >> 20, CPUs: k.Key.Shape.Limits.CPUs,
			Least: k.Terms.Least, Most: k.Terms.Most, Refill: k.Terms.Refill, MaxAge: k.Terms.Age.Seconds(),
			Size: k.Size, Ready: k.Ready, Memory: k.Memory, Hits: k.Hits, Misses: k.Misses, Failures: k.Failures})
	}
	return &answer[api.Pool]{out}, nil
}

type warmInput struct{ Body api.PoolWarm }

// warm is PUT /pool.
func (s poolRoutes) warm(ctx context.Context, in *warmInput) (*answer[api.Pool], error) {
	if err := s.Pool.Warm(ctx, in.Body.Language, in.Body.Image, in.Body.Count); err != nil {
		return nil, err
	}
	return s.get(ctx, nil)
}

// drain is DELETE /pool.
func (s poolRoutes) drain(ctx context.Context, _ *struct{}) (*struct{}, error) {
	return nil, s.Pool.Drain(ctx)
}
