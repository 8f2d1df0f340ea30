package devcontainers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

// A feature of a registry is fetched once, and kept as the archive that the registry had. Its files belong to what the
// user agrees to, so that a registry that has another version by then changes nothing.
func featureFile(sess *session.Session, ref string) (string, error) {
	sum := sha256.Sum256([]byte(ref))
	return sess.InHome("devcontainers", "features", hex.EncodeToString(sum[:])+".tar")
}

// fetched returns the files of a feature that has been fetched. One that cannot be read is fetched again.
func fetched(sess *session.Session, ref string) (devcontainer.Files, bool) {
	file, err := featureFile(sess, ref)
	if err != nil {
		return nil, false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, false
	}
	files, err := devcontainer.ReadArchive(data)
	return files, err == nil
}

// fetch gets a feature from its registry. Errors: those of session.FetchArtifact, InvalidArgument for what is none.
func fetch(ctx context.Context, sess *session.Session, ref string) error {
	host, _, _ := strings.Cut(ref, "/")
	sess.Say.Line("fetching the feature %s from %s", ref, host)
	a, err := session.FetchArtifact(ctx, sess, ref)
	if err != nil {
		return err
	}
	if _, err := devcontainer.ReadArchive(a.Layer); err != nil {
		return cove.Errorf(cove.InvalidArgument, "the feature %s: %w", ref, err)
	}
	file, err := featureFile(sess, ref)
	if err != nil {
		return err
	}
	return session.Keep(file, a.Layer)
}
