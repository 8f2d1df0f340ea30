package session

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove/internal/daemon"
)

// ImageNames lists the names of the images in the store, for completion; none when it cannot be read.
func ImageNames(sess *Session) (all []string) {
	cfg, err := sess.Config()
	if err != nil {
		return nil
	}
	store, err := daemon.OpenImages(cfg, sess.QuietLogger(cfg))
	if err != nil {
		return nil
	}
	images, _ := store.List(context.Background()) // completion cannot show an error
	for _, i := range images {
		all = append(all, i.Names...)
	}
	slices.Sort(all)
	return all
}

// ProviderNames lists the model providers that the configuration describes, for completion.
func ProviderNames(sess *Session) (all []string) {
	cfg, err := sess.Config()
	if err != nil {
		return nil
	}
	providers, _ := daemon.Providers(cfg)
	for _, p := range providers {
		all = append(all, p.Name)
	}
	return all
}
