package inspect

import (
	"bufio"
	"context"
	"hash/maphash"
	"io"

	"github.com/cove-sandbox/cove/internal/git/policy"
)

const (
	maxBlobs   = 50_000
	maxScanned = 1 << 20 // bytes of a line, or of the part of one, that are looked at together
	maxFound   = 16
	maxLines   = 1_000_000 // of an earlier version that are remembered
)

// blob is a file that a commit changes.
type blob struct{ commit, path, id, old string }

// secrets looks for them in lines that files have and their earlier versions, where those are in the push, have not.
func (r *run) secrets(ctx context.Context, blobs []blob) error {
	seed := maphash.MakeSeed()
	seen := map[string]bool{}
	for _, b := range blobs {
		if seen[b.id] || len(r.facts.Secrets) >= maxFound {
			continue
		}
		seen[b.id] = true
		before := map[uint64]bool{}
		if b.old != "" {
			err := r.git.objects(ctx, []string{b.old}, func(_, _ string, content io.Reader) error {
				return eachLine(content, func(_ int, line []byte) error {
					before[maphash.Bytes(seed, line)] = true
					if len(before) > maxLines {
						return defect("it changes a file of too many lines to look for secrets")
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
		}
		err := r.git.objects(ctx, []string{b.id}, func(_, _ string, content io.Reader) error {
			return eachLine(content, func(n int, line []byte) error {
				if before[maphash.Bytes(seed, line)] {
					return nil
				}
				for _, s := range r.job.Secrets {
					if s.Pattern.Match(line) && len(r.facts.Secrets) < maxFound {
						r.facts.Secrets = append(r.facts.Secrets, policy.Found{Commit: b.commit, Path: b.path, Line: n, Secret: s.Name})
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachLine hands lines to f, counted from 1; of one that is too long, its parts.
func eachLine(content io.Reader, f func(n int, line []byte) error) error {
	r := bufio.NewReaderSize(content, maxScanned)
	for n := 1; ; {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if err := f(n, line); err != nil {
				return err
			}
		}
		switch err {
		case nil:
			n++
		case bufio.ErrBufferFull:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
