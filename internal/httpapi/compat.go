package httpapi

import (
	"math"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove/api"
)

// compatType is the type of such an answer.
const compatType = "application/json; compat=1"

// compatForm is a huma.Transformer.
func compatForm(ctx huma.Context, _ string, v any) (any, error) {
	compat := ctx.Query("compat") == "1"
	if whole, is := v.(wholeExecution); is {
		if !compat {
			return withOutput{whole.Execution, whole.output}, nil
		}
		ctx.SetHeader("Content-Type", compatType)
		return withOutput{compatOf(whole.Execution), whole.output}, nil
	}
	if !compat {
		return v, nil
	}
	switch v := v.(type) {
	case api.ExecutionList:
		ctx.SetHeader("Content-Type", compatType)
		list := api.CompatExecutionList{Executions: make([]api.CompatExecution, len(v.Executions)), NextCursor: v.NextCursor}
		for i, e := range v.Executions {
			list.Executions[i] = compatOf(e)
		}
		return list, nil
	}
	return v, nil
}

// compatOf returns an execution in the older form. It is pure.
func compatOf(e api.Execution) api.CompatExecution {
	text := func(seconds float64) string {
		return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond).String()
	}
	c := api.CompatExecution{Execution: e, Duration: text(e.Duration), Usage: api.CompatUsage{
		CPUTimeMS: int64(math.Round(e.Usage.CPUTimeMS)), MemoryPeakMB: int64(math.Ceil(e.Usage.MemoryPeakMB)),
		PIDsUsed: e.Usage.PIDsUsed, BytesWritten: e.Usage.BytesWritten, DiskUsed: e.Usage.DiskUsed,
	}}
	if e.Timeout > 0 {
		c.Timeout = text(e.Timeout)
	}
	return c
}
