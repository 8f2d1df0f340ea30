package api

// CompatExecution is an Execution in the form of older execute APIs, for a query with compat=1.
type CompatExecution struct {
	Execution
	Duration string      `json:"duration" doc:"Wall time with units" example:"45.2ms"`
	Timeout  string      `json:"timeout,omitempty" doc:"In force, with units" example:"10s"`
	Usage    CompatUsage `json:"resource_usage"`
}

// CompatUsage is a ResourceUsage in whole numbers.
type CompatUsage struct {
	CPUTimeMS    int64 `json:"cpu_time_ms"`
	MemoryPeakMB int64 `json:"memory_peak_mb" doc:"MiB, rounded up"`
	PIDsUsed     int64 `json:"pids_used" doc:"Peak"`
	BytesWritten int64 `json:"bytes_written"`
	DiskUsed     int64 `json:"disk_used" doc:"Bytes in writable places at the end"`
}

// CompatExecutionList is a page of GET /executions in that form.
type CompatExecutionList struct {
	Executions []CompatExecution `json:"executions" nullable:"false"`
	NextCursor string            `json:"next_cursor,omitempty"`
}
