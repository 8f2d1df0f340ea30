package daemon

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/build"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// images makes images of sandboxes.
type images struct{ *Daemon }

// Commit implements httpapi.Images.
func (d images) Commit(ctx context.Context, who cove.Principal, ref string,
	r api.CommitRequest) (api.CommittedImage, error) {
	if r.Image == "" {
		return api.CommittedImage{}, cove.Errorf(cove.InvalidArgument, "the image needs a name")
	}
	if err := image.BuildsOf(d.images).CheckOwners(); err != nil {
		return api.CommittedImage{}, err
	}
	o := build.Options{Store: image.BuildsOf(d.images), Clock: clock.Real()}
	c := build.Commit{Name: r.Image, Changes: r.Changes, Text: "cove sandbox commit"}
	var img image.Image
	err := sandbox.ChangesOf(d.sandboxes).Commit(ctx, who, ref, r.Image,
		func(hold func(func(sandbox.Changed) error) error) (err error) {
			img, err = build.MakeCommit(ctx, o, c, func(use func(build.Changed) error) error {
				return hold(func(has sandbox.Changed) error {
					return use(build.Changed{Base: has.Image, Layer: has.Layer, Places: has.Places})
				})
			})
			return err
		})
	return api.CommittedImage{Digest: img.Digest, Name: r.Image, Size: img.Size, Files: img.Files}, err
}
