//go:build linux

package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/instance"
)

// newNonce names a container about to be requested, which has an owner until disown, whatever the daemon answers.
func (e *Engine) newNonce() string {
	nonce := e.id + "." + rand.Text()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nonces[nonce] = true
	return nonce
}

// disown gives up the ownership of containers: they are gone, or Sweep is to remove them.
func (e *Engine) disown(ts []trace) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range ts {
		delete(e.nonces, t.nonce)
	}
}

// lateness is how long a daemon may take to make a container for a client that has died: what it makes later is found
// by a later sweep, after minutes.
const lateness = 15 * time.Second

// Lateness implements engine.Late.
func (e *Engine) Lateness() time.Duration { return lateness }

// groupPatience is how long the last processes of a control group may take to end.
const groupPatience = 5 * time.Second

// Sweep implements engine.Engine: containers of this run directory whose instance is dead, and those of this engine's
// that could not be removed when they should have been. The list comes whole or not at all.
func (e *Engine) Sweep(ctx context.Context) (engine.Swept, error) {
	var swept engine.Swept
	removed, err := e.keeper.Sweep()
	if err != nil {
		return swept, err
	}
	swept.Items = removed
	found, err := e.api.list(ctx, e.realm)
	if err != nil {
		return swept, err
	}
	var errs []error
	for _, c := range found {
		if !owned(c.Names, c.Labels) || !e.stray(c.Labels) {
			continue
		}
		if err := e.api.remove(ctx, c.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.Contains(c.Names, "/"+containerName(cove.SandboxID(c.Labels[labelSandbox]))) {
			swept.Sandboxes++
		}
		swept.Items = append(swept.Items, fmt.Sprintf("container of sandbox %s, made by %s",
			c.Labels[labelSandbox], c.Labels[labelInstance]))
	}
	groups, err := sweepGroups(e)
	swept.Items = append(swept.Items, groups...)
	errs = append(errs, err)
	images, err := sweepImages(ctx, e)
	swept.Items = append(swept.Items, images...)
	return swept, errors.Join(append(errs, err)...)
}

func (e *Engine) stray(labels map[string]string) bool {
	nonce := labels[labelNonce]
	if strings.HasPrefix(nonce, e.id+".") {
		e.mu.Lock()
		defer e.mu.Unlock()
		return !e.nonces[nonce]
	}
	// A detached container is kept until its owner removes it.
	return !instance.Alive(e.o.RunDir, cove.InstanceID(labels[labelInstance])) &&
		!e.keeper.Has(cove.SandboxID(labels[labelSandbox]))
}

// sweepGroups removes control groups of Cove's own whose instance is dead.
func sweepGroups(e *Engine) (removed []string, err error) {
	if e.groups == nil {
		return nil, nil
	}
	all, err := e.groups.List()
	errs := []error{err}
	for _, name := range all {
		if !e.names.Orphan(name) {
			continue
		}
		g := e.groups.Group(name)
		if err := errors.Join(g.Kill(), g.Remove(groupPatience)); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, "control group "+name)
	}
	return removed, errors.Join(errs...)
}

// sweepImages removes images of sandboxes that are gone. Labels prove nothing, but no other image has such a name.
func sweepImages(ctx context.Context, e *Engine) (removed []string, err error) {
	if e.api.podman.engine {
		return nil, nil // all of its sandboxes are on this machine
	}
	var errs []error
	err = e.api.do(ctx, "list its images", func(ctx context.Context) error {
		r, err := e.api.c.ImageList(ctx, client.ImageListOptions{
			Filters: make(client.Filters).Add("label", labelRealm+"="+e.realm)})
		if err != nil {
			return err
		}
		for _, i := range r.Items {
			id, err := cove.ParseSandboxID(i.Labels[labelSandbox])
			if err != nil || !slices.Contains(i.RepoTags, imageTag(id)) || !e.stray(i.Labels) {
				continue
			}
			if err := e.api.removeImage(ctx, imageTag(id)); err != nil {
				errs = append(errs, err)
				continue
			}
			removed = append(removed, fmt.Sprintf("image of sandbox %s, made by %s", id, i.Labels[labelInstance]))
		}
		return nil
	})
	return removed, errors.Join(append(errs, err)...)
}
