// Package merge merges the Compose files of a repository as Compose does, by its library. It opens no file and reads no
// environment. The library is large, so that this package is apart from internal/compose: commands that people wait for
// run it in another process.
package merge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/schema"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/compose-spec/compose-go/v2/validation"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Bounds of what is merged. Real files are far below them.
const (
	maxSplices = 64      // variables in one value
	maxSpliced = 4 << 20 // bytes of all values in which there are variables
	maxRange   = 512     // ports of all ranges
)

// Files merges files. A service may extend another one of its file; what would read other files is refused. Errors:
// InvalidArgument, TooLarge, Unsupported.
func Files(r compose.Request) (m compose.Merged, err error) {
	if _, err := compose.Read(r.Files); err != nil {
		return m, err
	}
	// The library expects a schema that it checks only later.
	defer func() {
		if found := recover(); found != nil {
			m, err = compose.Merged{}, cove.Errorf(cove.InvalidArgument, "%s is not as Compose has it: %v",
				r.Files[0].Path, found)
		}
	}()
	return load(r)
}

// none is the loader of files that are not given. It refuses all of them.
type none struct{}

func (none) Accept(string) bool { return true }
func (none) Dir(string) string  { return "/" }
func (none) Load(_ context.Context, name string) (string, error) {
	return "", fmt.Errorf("%.200q is not read: name it in dockerComposeFile", name)
}

func load(r compose.Request) (m compose.Merged, err error) {
	details := types.ConfigDetails{WorkingDir: "/", Environment: maps.Clone(r.Env)}
	if details.Environment == nil {
		details.Environment = map[string]string{}
	}
	for _, f := range r.Files {
		details.ConfigFiles = append(details.ConfigFiles,
			types.ConfigFile{Filename: f.Path, Content: slices.Concat([]byte{'\n'}, f.Data)[1:]}) // not nil: nil is read
	}
	s := &splices{unset: map[string]bool{}}
	option := func(o *loader.Options) {
		// Validate below: the loader's own writes warnings to standard error.
		o.SkipValidation, o.SkipInclude, o.SkipNormalization, o.SkipConsistencyCheck = true, true, true, true
		o.SkipResolveEnvironment, o.SkipResolveLabels, o.ResolvePaths = true, true, false
		o.ResourceLoaders, o.Profiles = []loader.ResourceLoader{none{}}, []string{"*"}
		o.Interpolate.Substitute = s.substitute
		o.SetProjectName("devcontainer", true)
	}
	model, err := loader.LoadModelWithContext(context.Background(), details, option)
	if err == nil {
		delete(model, "version")
		err = schema.Validate(model)
	}
	if err == nil {
		err = validation.Validate(model)
	}
	if err != nil {
		return m, invalid(r, err)
	}
	keys := map[string][]string{}
	services, _ := model["services"].(map[string]any)
	for name, of := range services {
		members, _ := of.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(members)) {
			if says(members[key]) && !strings.HasPrefix(key, "x-") {
				keys[name] = append(keys[name], key)
			}
		}
	}
	whole, err := loader.ModelToProject(model, loader.ToOptions(&details, []func(*loader.Options){option}), details)
	if err != nil {
		return m, invalid(r, err)
	}
	m = compose.Merged{Services: map[string]compose.Service{}, Unset: slices.Sorted(maps.Keys(s.unset))}
	for name, of := range whole.Volumes {
		if bool(of.External) || len(of.DriverOpts) > 0 {
			m.Elsewhere = append(m.Elsewhere, name)
		}
	}
	slices.Sort(m.Elsewhere)
	for name, of := range whole.Services {
		one, err := service(of)
		if err != nil {
			return m, invalid(r, err)
		}
		one.Name, one.Keys = name, keys[name]
		m.Services[name] = one
	}
	return m, nil
}

// service returns what Cove takes of a service.
func service(s types.ServiceConfig) (compose.Service, error) {
	rounded := func(n float32) float64 { return math.Round(float64(n)*1000) / 1000 }
	one := compose.Service{Image: s.Image, User: s.User, WorkingDir: s.WorkingDir, Command: s.Command,
		Entrypoint: s.Entrypoint, Environment: s.Environment, Expose: s.Expose, Links: s.Links, Profiles: s.Profiles,
		Memory: int64(s.MemLimit), CPUs: rounded(s.CPUS), PIDs: s.PidsLimit, SecurityOpt: s.SecurityOpt,
		NetworkMode: s.NetworkMode, StopSignal: s.StopSignal, Tmpfs: s.Tmpfs, DependsOn: map[string]compose.Dependency{}}
	for _, f := range s.EnvFiles {
		one.EnvFiles = append(one.EnvFiles, compose.EnvFile{Path: f.Path, Format: f.Format, Required: bool(f.Required)})
	}
	for _, v := range s.Volumes {
		of := compose.Volume{Type: v.Type, Source: v.Source, Target: v.Target}
		if v.Tmpfs != nil {
			of.Size = int64(v.Tmpfs.Size)
		}
		one.Volumes = append(one.Volumes, of)
	}
	for _, p := range s.Ports {
		one.Ports = append(one.Ports, compose.Port{Target: p.Target, Published: p.Published, Protocol: p.Protocol})
	}
	for name, d := range s.DependsOn {
		one.DependsOn[name] = compose.Dependency{Required: d.Required,
			Ends: d.Condition == types.ServiceConditionCompletedSuccessfully}
	}
	for _, n := range s.Networks {
		one.Named = one.Named || n != nil && (len(n.Aliases) > 0 || n.Ipv4Address != "" || n.Ipv6Address != "")
	}
	if h := s.HealthCheck; h != nil {
		one.Health = &compose.Health{Test: h.Test, Disable: h.Disable}
		for from, to := range map[*types.Duration]*time.Duration{h.Interval: &one.Health.Interval,
			h.Timeout: &one.Health.Timeout, h.StartPeriod: &one.Health.StartPeriod} {
			if from != nil {
				*to = time.Duration(*from)
			}
		}
		if h.Retries != nil {
			one.Health.Retries = *h.Retries
		}
	}
	if d := s.Deploy; d != nil && d.Resources.Limits != nil {
		l := d.Resources.Limits
		one.Memory = cmp.Or(int64(l.MemoryBytes), one.Memory)
		one.CPUs, one.PIDs = cmp.Or(rounded(float32(l.NanoCPUs)), one.CPUs), cmp.Or(l.Pids, one.PIDs)
	}
	if d := s.Deploy; d != nil && d.Resources.Reservations != nil {
		one.Reserves = len(d.Resources.Reservations.Devices) > 0
	}
	if s.Build == nil {
		return one, nil
	}
	one.Build = &compose.Build{Context: s.Build.Context, Dockerfile: s.Build.Dockerfile, Inline: s.Build.DockerfileInline,
		Target: s.Build.Target, Args: s.Build.Args}
	var members map[string]any
	data, err := json.Marshal(s.Build)
	if err == nil {
		err = json.Unmarshal(data, &members)
	}
	taken := []string{"context", "dockerfile", "dockerfile_inline", "args", "target", "labels", "tags", "no_cache", "pull"}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(taken, key) && says(members[key]) {
			one.Build.Others = append(one.Build.Others, key)
		}
	}
	return one, err
}

// says reports whether a value is more than the absence of one.
func says(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

func invalid(r compose.Request, err error) error {
	if known, ok := errors.AsType[*cove.Error](err); ok {
		return known
	}
	name := r.Files[0].Path
	if len(r.Files) > 1 {
		name = "the files of Compose"
	}
	return cove.Errorf(cove.InvalidArgument, "%s: %.1000s", name, err)
}

// splices puts values of variables into texts, within bounds.
type splices struct {
	total, ports int
	unset        map[string]bool
	err          error
}

func (s *splices) substitute(text string, of template.Mapping) (out string, err error) {
	if s.err != nil { // the library goes on with other values
		return "", s.err
	}
	if out = text; strings.Contains(text, "$") {
		if out, err = s.spliced(text, of); err != nil {
			return "", err
		}
	}
	if s.ports += portsIn(out); s.ports > maxRange {
		s.err = cove.Errorf(cove.TooLarge, "%.80q: there are more than %d ports in ranges", out, maxRange)
	}
	return out, s.err
}

func (s *splices) spliced(text string, of template.Mapping) (string, error) {
	if strings.Count(text, "$") > maxSplices {
		s.err = cove.Errorf(cove.TooLarge, "a value has more than %d variables", maxSplices)
		return "", s.err
	}
	for name, v := range template.ExtractVariables(map[string]any{"": text}, nil) {
		if _, is := of(name); !is && v.DefaultValue == "" && v.PresenceValue == "" && !v.Required {
			s.unset[name] = true
		}
	}
	out, err := template.SubstituteWithOptions(text, of, template.WithoutLogging)
	if s.total += len(out); s.total > maxSpliced {
		s.err = cove.Errorf(cove.TooLarge, "values with variables are longer than %d MiB", maxSpliced>>20)
		return "", s.err
	}
	return out, err
}

// ranges is a range of ports, as ports and expose have it.
var ranges = pattern.New(`^(?:[0-9a-fA-F.:\[\]-]*:)?([0-9]+)-([0-9]+)(?:/[a-z]+)?$`)

// portsIn returns how many ports a text stands for, if it is a range of them. The library makes a value of each.
func portsIn(text string) int {
	ends := ranges.Regexp().FindStringSubmatch(text)
	if ends == nil {
		return 0
	}
	from, err := strconv.Atoi(ends[1])
	to, failed := strconv.Atoi(ends[2])
	if err != nil || failed != nil || to < from {
		return 0
	}
	return min(to-from, maxRange) + 1
}
