package devcontainer

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// limitArgs are the options of "docker run" that narrow, each with what it sets.
var limitArgs = map[string]func(*cove.Limits, string) bool{
	"--memory":     func(l *cove.Limits, s string) bool { return size(s, &l.Memory) },
	"-m":           func(l *cove.Limits, s string) bool { return size(s, &l.Memory) },
	"--cpus":       func(l *cove.Limits, s string) bool { return cores(s, &l.CPUs) },
	"--pids-limit": func(l *cove.Limits, s string) bool { return count(s, &l.PIDs) },
}

// noEffect are options that ask for what every sandbox has.
func noEffect(option, value string) bool {
	switch option {
	case "--init", "--rm", "--cap-drop", "--read-only":
		return true
	case "--network", "--net":
		return value == "none"
	case "--security-opt":
		return strings.HasPrefix(value, "no-new-privileges") && !strings.HasSuffix(value, "false")
	}
	return false
}

// single are options without a value of their own.
var single = []string{"--init", "--rm", "--read-only", "--privileged", "-d", "--detach", "-i", "-t", "-it", "--tty",
	"--interactive", "-P", "--publish-all", "--no-healthcheck", "--oom-kill-disable"}

// runArgs takes limits of the options for Docker, and leaves out the others one by one.
func (v *evaluation) runArgs(p property) error {
	var args []string
	if err := p.into(v.file, &args); err != nil {
		return err
	}
	for i, arg := range args {
		args[i], _ = v.vars.expand(arg)
	}
	for option, value := range options(args) {
		set, narrows := limitArgs[option]
		switch {
		case narrows && !set(&v.wish, value):
			return p.wrong(v.file, "%s %.40q is no limit", option, value)
		case narrows || noEffect(option, value):
		default:
			v.leave(p, "runArgs "+strings.TrimSpace(option+" "+value), "of the options for Docker only limits are taken")
		}
	}
	return nil
}

// options returns the options of "docker run" with their values; one without a value has an empty one.
func options(args []string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := 0; i < len(args); i++ {
			option, value, joined := strings.Cut(args[i], "=")
			if !joined && strings.HasPrefix(option, "-") && !slices.Contains(single, option) && i+1 < len(args) {
				i++
				value = args[i]
			}
			if !yield(option, value) {
				return
			}
		}
	}
}

// hostRequirements says where the machine has less than the file needs. It raises no limit.
func (v *evaluation) hostRequirements(p property) error {
	var need map[string]any
	if err := p.into(v.file, &need); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(need)) {
		wanted := fmt.Sprint(need[key])
		var cpus float64
		var bytes int64
		has := ""
		switch {
		case key == "cpus" && cores(wanted, &cpus):
			if v.Machine.CPUs != 0 && v.Machine.CPUs < cpus {
				has = fmt.Sprintf("this machine has %v", v.Machine.CPUs)
			} else if v.Limits.CPUs < cpus {
				has = fmt.Sprintf("the sandbox has %v; --cpus says otherwise", v.Limits.CPUs)
			}
		case key == "memory" && size(wanted, &bytes):
			if v.Machine.Memory != 0 && v.Machine.Memory < bytes {
				has = "this machine has " + sizeText(v.Machine.Memory)
			} else if v.Limits.Memory < bytes {
				has = "the sandbox has " + sizeText(v.Limits.Memory) + "; --memory says otherwise"
			}
		case key == "storage" && size(wanted, &bytes):
			if v.Limits.Disk < bytes {
				has = "the sandbox has " + sizeText(v.Limits.Disk) + "; --disk says otherwise"
			}
		case key == "gpu" && wanted != "false" && wanted != "optional":
			has = "sandboxes have no GPU"
		case key == "gpu":
			continue
		default:
			return p.wrong(v.file, "%s: %.40q does not fit here", key, wanted)
		}
		if has != "" {
			v.leave(p, p.name+"."+key+" "+wanted, has)
		} else {
			v.take(p, p.name+"."+key, wanted)
		}
	}
	return nil
}

// customizations reads Cove's own and those that are read alike; those of other programs are theirs.
func (v *evaluation) customizations(p property) error {
	var all struct {
		Cove, DevAgent tool
	}
	var tools map[string]any
	if err := p.into(v.file, &tools); err != nil {
		return err
	}
	name := "cove"
	wrapped := struct {
		Cove     *tool `json:"cove"`
		DevAgent *tool `json:"devagent"`
	}{&all.Cove, &all.DevAgent}
	if err := p.into(v.file, &wrapped); err != nil {
		return err
	}
	said := all.Cove.Isolation
	if said == nil {
		name, said = "devagent", all.DevAgent.Isolation
	}
	if said == nil {
		return nil
	}
	key := "customizations." + name + ".isolation"
	i := said.Over(Isolation{})
	if i.Enabled != nil && !*i.Enabled {
		v.refuse(p, key+".enabled", "a file of a repository does not take the wall away; a profile with the mode none does")
		return nil
	}
	if len(i.Caps.Add) > 0 {
		v.leave(p, key+".caps.add", widening["capAdd"])
	}
	r := i.Resources
	wish := cove.Limits{PIDs: r.PIDsLimit}
	if r.Memory != "" && !size(string(r.Memory), &wish.Memory) || r.CPUs != "" && !cores(string(r.CPUs), &wish.CPUs) ||
		r.PIDsLimit < 0 {
		return p.wrong(v.file, "%s.resources: memory is a size as 4g, cpus and pidsLimit are numbers", name)
	}
	v.wish = lower(v.wish, wish)
	v.out.Network.asks(i.Network.Allowlist, i.Network.Passthrough, v.Allowed)
	for _, host := range v.out.Network.Allowed {
		v.add("network", host, FromUser)
	}
	return nil
}

type tool struct {
	Isolation *Isolation `json:"isolation"`
}

// size reads a size as Docker does: a number of bytes, or of b, k, m, g, t, with or without b at its end.
func size(text string, to *int64) bool {
	lower := strings.TrimSpace(strings.ToLower(text))
	digits := strings.TrimRight(lower, "bkmgti ")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(lower[len(digits):]), "b"), "i")
	shift := strings.Index(" kmgt", unit) * 10
	if unit == "" {
		shift = 0
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || shift < 0 || len(unit) > 1 || !(n > 0) || n*math.Exp2(float64(shift)) > math.MaxInt64/2 {
		return false
	}
	*to = int64(n * math.Exp2(float64(shift)))
	return true
}

func cores(text string, to *float64) bool {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) || math.IsInf(n, 0) {
		return false
	}
	*to = n
	return true
}

func count(text string, to *int64) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return false
	}
	*to = n
	return true
}

func sizeText(n int64) string {
	if n%(1<<30) == 0 {
		return fmt.Sprintf("%dG", n>>30)
	}
	return fmt.Sprintf("%dM", n>>20)
}

// narrowed returns those of the least limits that are not the user's.
func narrowed(least, users cove.Limits) (l cove.Limits) {
	if least.Memory != users.Memory {
		l.Memory = least.Memory
	}
	if least.CPUs != users.CPUs {
		l.CPUs = least.CPUs
	}
	if least.PIDs != users.PIDs {
		l.PIDs = least.PIDs
	}
	return l
}
