// Package job is work of Cove's own in a sandbox: a sandbox is made for it, programs run in it, their output is taken,
// and the sandbox is torn down. What the programs are told, and what they say, may be hostile; that is why they run
// there.
//
//	j, err := job.Open(ctx, eng, clk, provision.Plan{Shape: cove.Shape{Limits: limits, User: cove.CodeUser}})
//	defer j.Close()
//	var said bytes.Buffer
//	outcome, err := j.Run(ctx, guest.ProcessSpec{Args: []string{"git", "--version"}, …},
//		process.Attendance{Stdout: &said})
package job

import (
	"context"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/cputime"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Job is a sandbox for work of Cove's own. Its methods may be called concurrently.
type Job struct {
	*provision.Sandbox
	clock clock.Clock
}

// Open makes the sandbox of a job. On error nothing is left. Errors: those of provision.New.
func Open(ctx context.Context, eng engine.Engine, clk clock.Clock, plan provision.Plan) (*Job, error) {
	sb, err := provision.New(ctx, eng, plan)
	if err != nil {
		return nil, err
	}
	return &Job{Sandbox: sb, clock: clk}, nil
}

// Start starts a program, which the caller attends to. Errors: those of the guest.
func (j *Job) Start(ctx context.Context, spec guest.ProcessSpec) (*process.Process, error) {
	return process.Start(ctx, j.Sandbox, j.clock, spec)
}

// Run runs a program to its end, or to that of ctx, which ends it; a guest that does not end it is killed with the
// sandbox. A program that fails is an outcome. Errors: those of Start and of process.Attend.
func (j *Job) Run(ctx context.Context, spec guest.ProcessSpec, a process.Attendance) (process.Outcome, error) {
	p, err := j.Start(ctx, spec)
	if err != nil {
		return process.Outcome{}, err
	}
	a.Own = true
	return p.Attend(ctx, a)
}

// Count counts the CPU time of the job in the meter of a context (package cputime), also after the context has ended. A
// job is counted once, before it is closed. Errors: those of Stats.
func (j *Job) Count(ctx context.Context) error {
	stats, err := j.Stats(context.WithoutCancel(ctx))
	if err == nil {
		cputime.Count(ctx, stats.CPUTime)
	}
	return err
}

// Close tears the sandbox down, with every program in it.
func (j *Job) Close() error { return j.TearDown() }
