package cove

import (
	"path"
	"strings"
)

// Volume is a directory of a long-lived sandbox's own at a place inside, which no other sandbox sees: on the sandbox's
// disk, where it lasts as long as the sandbox, or in memory.
type Volume struct {
	Target string // absolute path inside, clean
	Memory bool   `json:",omitempty"`
	Size   int64  `json:",omitempty"` // bytes in memory; 0: as much as everything else writable may have
}

// MaxVolumes is the most volumes of one sandbox.
const MaxVolumes = 32

// CheckVolumes refuses volumes that cannot be, by themselves. It is pure. Errors: InvalidArgument.
func CheckVolumes(all []Volume) error {
	if len(all) > MaxVolumes {
		return Errorf(InvalidArgument, "%d volumes, at most %d are possible", len(all), MaxVolumes)
	}
	there := map[string]bool{}
	for _, v := range all {
		switch {
		case !path.IsAbs(v.Target) || path.Clean(v.Target) != v.Target || strings.IndexByte(v.Target, 0) >= 0 ||
			len(v.Target) > 1024:
			return Errorf(InvalidArgument, "%.200q is no place for a volume", v.Target).
				WithHint("give an absolute path inside, such as /data")
		case v.Size < 0 || v.Size > 0 && !v.Memory:
			return Errorf(InvalidArgument, "the volume at %s has a size of its own", v.Target).
				WithHint("a volume on the sandbox's disk shares its size with the rest: --disk; one in memory may have one")
		case there[v.Target]:
			return Errorf(InvalidArgument, "two volumes are at %s", v.Target).WithHint("leave one out")
		}
		there[v.Target] = true
	}
	return nil
}
