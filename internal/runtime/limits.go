package runtime

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/cove-sandbox/cove"
)

// Defaults of every runtime that does not say otherwise.
var Defaults = cove.Limits{
	Memory: 256 << 20, CPUs: 1, PIDs: 50, Disk: 100 << 20, Inodes: 20_000, OpenFiles: 1024,
	Stdout: 1 << 20, Stderr: 256 << 10, Timeout: 10 * time.Second,
}

// Lasting is the default of a long-lived sandbox. Its disk is that of workspace and home together; all other writable
// places have as much again, of memory.
var Lasting = cove.Limits{Memory: 4 << 30, CPUs: 4, PIDs: 2048, Disk: 4 << 30, Inodes: 500_000, OpenFiles: 1 << 16}

// The longest wall times of an execution: that a caller may ask for, that the machine's owner may, and that can be
// configured for either.
const (
	MaxTimeout     = 60 * time.Second
	OwnerTimeout   = 24 * time.Hour
	LongestTimeout = 7 * 24 * time.Hour
)

// largestDisk is the most that can be configured, for the disks of long-lived sandboxes: bytes.
const largestDisk = 1 << 40

// Max is the most that may be asked for where nothing else is configured.
var Max = cove.Limits{
	Memory: 16 << 30, CPUs: 64, PIDs: 8192, Disk: 16 << 30, Inodes: 2_000_000,
	OpenFiles: 1 << 20, // fs.nr_open's default: the kernel takes no more
	Stdout:    16 << 20, Stderr: 16 << 20, Timeout: MaxTimeout,
}

// Min is the least that makes sense: below it a guest or an interpreter cannot start.
var Min = cove.Limits{
	Memory: 16 << 20, CPUs: 0.01, PIDs: 1, Disk: 1 << 20, Inodes: 64, OpenFiles: 64,
	Stdout: 1 << 10, Stderr: 1 << 10, Timeout: time.Millisecond,
}

// Bounds are the limits that callers of one server may ask for.
type Bounds struct {
	// Defaults apply where neither the caller nor the runtime says anything. Zero fields take the package's.
	Defaults cove.Limits
	// Max is the most a caller may ask for; what a runtime asks for by itself
	// is reduced to it. Zero fields take the package's.
	Max cove.Limits
	// OwnerTimeout is the longest wall time that the machine's owner may ask for; zero is OwnerTimeout of the package. It
	// is never shorter than that of Max.
	OwnerTimeout time.Duration
	// ownerFiles is the Max.OpenFiles of the machine's owner, where it differs.
	ownerFiles int64
}

// passedFiles is half of what most programs may have open, the soft limit of a login. The kernel counts the descriptors
// that are on their way through sockets for a user, and refuses another to a program that may have fewer open.
const passedFiles = 512

// ForUser returns the bounds where sandboxes of executions run as the user who makes them: by default, and for callers
// other than the owner at most, they leave that user's programs descriptors to pass. What is configured stays.
func (b Bounds) ForUser() Bounds {
	if f := cmp.Or(b.Defaults.OpenFiles, Defaults.OpenFiles); f == Defaults.OpenFiles {
		b.Defaults.OpenFiles = passedFiles
	}
	if f := cmp.Or(b.Max.OpenFiles, Max.OpenFiles); f == Max.OpenFiles {
		b.Max.OpenFiles, b.ownerFiles = max(passedFiles, b.Defaults.OpenFiles), f
	}
	return b
}

// ForOwner returns the bounds of the machine's owner.
func (b Bounds) ForOwner() Bounds {
	b.Max.Timeout = max(cmp.Or(b.OwnerTimeout, OwnerTimeout), cmp.Or(b.Max.Timeout, MaxTimeout))
	b.Max.OpenFiles = cmp.Or(b.ownerFiles, b.Max.OpenFiles)
	return b
}

// ceiling returns what can be configured of a limit at most.
func ceiling(f field) float64 {
	most := Max
	most.Timeout, most.Disk = LongestTimeout, largestDisk
	return f.get(most)
}

// Resolve is Bounds.Resolve where nothing is configured.
func (r Runtime) Resolve(want cove.Limits) (cove.Limits, error) { return Bounds{}.Resolve(r, want) }

// Resolve fills the fields that want leaves at zero and refuses the others
// when they are out of range. Every field of the result is set.
func (b Bounds) Resolve(r Runtime, want cove.Limits) (cove.Limits, error) {
	var got cove.Limits
	for _, f := range fields {
		most := first(f.get(b.Max), f.get(Max))
		v := f.get(want)
		switch {
		case v == 0:
			v = min(first(f.get(r.Limits), f.get(b.Defaults), f.get(Defaults)), most)
		case !(v >= f.get(Min) && v <= most): // so written, NaN is refused too
			return cove.Limits{}, cove.Errorf(cove.InvalidArgument, "%s of %s is out of range", f.name, f.show(v)).
				WithHint("ask for %s to %s, or leave it out", f.show(f.get(Min)), f.show(most))
		}
		f.set(&got, v)
	}
	return got, nil
}

// Check refuses configured bounds that no request could meet.
func (b Bounds) Check() error {
	for _, f := range fields {
		for _, v := range []struct {
			what  string
			value float64
		}{{"default", f.get(b.Defaults)}, {"maximum", f.get(b.Max)}} {
			if v.value != 0 && !(v.value >= f.get(Min) && v.value <= ceiling(f)) {
				return cove.Errorf(cove.InvalidArgument, "the %s %s of %s is out of range", v.what, f.name, f.show(v.value)).
					WithHint("set %s to %s", f.show(f.get(Min)), f.show(ceiling(f)))
			}
		}
		if d, m := f.get(b.Defaults), first(f.get(b.Max), f.get(Max)); d > m {
			return cove.Errorf(cove.InvalidArgument, "the default %s of %s is over the maximum of %s", f.name,
				f.show(d), f.show(m)).
				WithHint("lower the default or raise the maximum")
		}
	}
	return nil
}

// first is the first value that is not zero.
func first(values ...float64) float64 {
	for _, v := range values {
		if v != 0 {
			return v
		}
	}
	return 0
}

// field is one limit. float64 holds every value in range exactly.
type field struct {
	name string
	get  func(cove.Limits) float64
	set  func(*cove.Limits, float64)
	show func(float64) string
}

var fields = []field{
	integer("memory", inBytes, func(l *cove.Limits) *int64 { return &l.Memory }),
	{"cpus", func(l cove.Limits) float64 { return l.CPUs }, func(l *cove.Limits, v float64) { l.CPUs = v }, number},
	integer("pids", number, func(l *cove.Limits) *int64 { return &l.PIDs }),
	integer("disk", inBytes, func(l *cove.Limits) *int64 { return &l.Disk }),
	integer("inodes", number, func(l *cove.Limits) *int64 { return &l.Inodes }),
	integer("open files", number, func(l *cove.Limits) *int64 { return &l.OpenFiles }),
	integer("stdout", inBytes, func(l *cove.Limits) *int64 { return &l.Stdout }),
	integer("stderr", inBytes, func(l *cove.Limits) *int64 { return &l.Stderr }),
	{"timeout", func(l cove.Limits) float64 { return float64(l.Timeout) },
		func(l *cove.Limits, v float64) { l.Timeout = time.Duration(v) },
		seconds},
}

func integer(name string, show func(float64) string, at func(*cove.Limits) *int64) field {
	return field{name,
		func(l cove.Limits) float64 { return float64(*at(&l)) },
		func(l *cove.Limits, v float64) { *at(l) = int64(v) },
		show}
}

// number writes out what people would, but not 1e+308 or 1e-300.
func number(v float64) string {
	if a := math.Abs(v); a < 1e15 && a > 1e-10 || a == 0 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// seconds shows a time given in nanoseconds.
func seconds(v float64) string { return number(v/float64(time.Second)) + " s" }

// inBytes shows a size in the largest unit that divides it.
func inBytes(v float64) string {
	n := int64(v)
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n != 0 && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
