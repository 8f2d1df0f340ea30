package docker

import (
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/blkiodev"
	"github.com/moby/moby/api/types/container"
)

// podmanSpec is the part of Podman's SpecGenerator that a sandbox needs. Podman's form of Docker's API leaves fields
// out in silence, masked paths and the text of a system call filter among them; its own has all but the options of a
// tmpfs (see fit).
type podmanSpec struct {
	Name            string            `json:"name"`
	Image           string            `json:"image"`
	Entrypoint      []string          `json:"entrypoint"`
	Command         []string          `json:"command"`
	Env             map[string]string `json:"env"`
	UnsetEnvAll     bool              `json:"unsetenvall"`
	Labels          map[string]string `json:"labels"`
	Stdin           bool              `json:"stdin"`
	StopSignal      int               `json:"stop_signal"`
	StopTimeout     int               `json:"stop_timeout"`
	Systemd         string            `json:"systemd"`
	Notify          string            `json:"sdnotifyMode"`
	Hostname        string            `json:"hostname"`
	Restart         string            `json:"restart_policy"`
	ManagePasswd    bool              `json:"manage_password"`
	ImageVolumes    string            `json:"image_volume_mode"`
	User            string            `json:"user"`
	WorkDir         string            `json:"work_dir"`
	PIDNS           podmanNS          `json:"pidns"`
	UTSNS           podmanNS          `json:"utsns"`
	IPCNS           podmanNS          `json:"ipcns"`
	NetNS           podmanNS          `json:"netns"`
	CgroupNS        podmanNS          `json:"cgroupns"`
	UserNS          podmanNS          `json:"userns,omitzero"`
	UseImageHosts   bool              `json:"use_image_hosts"`
	UseImageResolv  bool              `json:"use_image_resolve_conf"`
	CapAdd          []string          `json:"cap_add"`
	CapDrop         []string          `json:"cap_drop"`
	NoNewPrivileges bool              `json:"no_new_privileges"`
	SeccompProfile  string            `json:"seccomp_profile_path,omitempty"`
	ReadOnly        bool              `json:"read_only_filesystem"`
	Mask            []string          `json:"mask"`
	Mounts          []podmanMount     `json:"mounts"`
	Limits          podmanLimits      `json:"resource_limits,omitzero"`
	Rlimits         []podmanRlimit    `json:"r_limits"`
	Log             podmanLog         `json:"log_configuration"`
	Health          podmanHealth      `json:"healthconfig"`

	ReadBps   map[string]podmanRate `json:"throttleReadBpsDevice,omitempty"`
	WriteBps  map[string]podmanRate `json:"throttleWriteBpsDevice,omitempty"`
	ReadIOps  map[string]podmanRate `json:"throttleReadIOPSDevice,omitempty"`
	WriteIOps map[string]podmanRate `json:"throttleWriteIOPSDevice,omitempty"`
}

type podmanNS struct {
	Mode  string `json:"nsmode"`
	Value string `json:"value,omitempty"`
}

type podmanMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

type podmanLimits struct {
	Memory *podmanMemory `json:"memory,omitempty"`
	CPU    *podmanCPU    `json:"cpu,omitempty"`
	PIDs   *podmanPIDs   `json:"pids,omitempty"`
}

type podmanMemory struct {
	Limit int64 `json:"limit"`
	Swap  int64 `json:"swap"` // memory and swap together
}

type podmanCPU struct {
	Quota  int64  `json:"quota"`
	Period uint64 `json:"period"`
}

type podmanPIDs struct {
	Limit int64 `json:"limit"`
}

type podmanRlimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

type podmanLog struct {
	Driver string `json:"driver"`
}

type podmanHealth struct {
	Test []string
}

type podmanRate struct {
	Rate uint64 `json:"rate"`
}

// cpuPeriod is the period of the CPU limit, in microseconds.
const cpuPeriod = 100_000

// forPodman translates a plan. seccomp is the file of the filter, and most holds the limits of this process by name,
// for which Podman would take higher ones than it may give.
func forPodman(name string, c *container.Config, h *container.HostConfig, seccomp string,
	most map[string]uint64) podmanSpec {
	s := podmanSpec{
		Name: name, Image: c.Image, Entrypoint: c.Entrypoint, Command: []string{}, Env: map[string]string{},
		UnsetEnvAll: true, Labels: c.Labels, Stdin: c.OpenStdin, StopSignal: 9, Systemd: "false", Notify: "ignore",
		Hostname: c.Hostname, Restart: "no", ImageVolumes: "ignore", User: c.User, WorkDir: c.WorkingDir,
		PIDNS: podmanNS{Mode: "private"}, UTSNS: podmanNS{Mode: "private"}, IPCNS: podmanNS{Mode: string(h.IpcMode)},
		CgroupNS: podmanNS{Mode: string(h.CgroupnsMode)}, NetNS: podmanNS{Mode: string(h.NetworkMode)},
		UseImageHosts: true, UseImageResolv: true, CapAdd: h.CapAdd, CapDrop: h.CapDrop, NoNewPrivileges: true,
		SeccompProfile: seccomp, ReadOnly: h.ReadonlyRootfs, Mask: h.MaskedPaths, Log: podmanLog{h.LogConfig.Type},
		Health:  podmanHealth{c.Healthcheck.Test},
		ReadBps: rates(h.BlkioDeviceReadBps), WriteBps: rates(h.BlkioDeviceWriteBps),
		ReadIOps: rates(h.BlkioDeviceReadIOps), WriteIOps: rates(h.BlkioDeviceWriteIOps),
	}
	s.UserNS.Mode, s.UserNS.Value, _ = strings.Cut(string(h.UsernsMode), ":")
	for _, kv := range c.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			s.Env[name] = value
		}
	}
	for _, m := range h.Mounts {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		s.Mounts = append(s.Mounts, podmanMount{path.Clean(m.Target), "bind", m.Source,
			[]string{"bind", "rprivate", "nosuid", "nodev", access}})
	}
	for target, options := range h.Tmpfs {
		s.Mounts = append(s.Mounts, podmanMount{target, "tmpfs", "tmpfs",
			append(slices.DeleteFunc(strings.Split(options, ","), later), "notmpcopyup")})
	}
	// A place may lie in another.
	slices.SortFunc(s.Mounts, func(a, b podmanMount) int { return strings.Compare(a.Destination, b.Destination) })
	if h.Memory > 0 {
		s.Limits.Memory = &podmanMemory{h.Memory, h.MemorySwap}
	}
	if h.NanoCPUs > 0 {
		s.Limits.CPU = &podmanCPU{h.NanoCPUs / (1e9 / cpuPeriod), cpuPeriod}
	}
	if *h.PidsLimit > 0 {
		s.Limits.PIDs = &podmanPIDs{*h.PidsLimit}
	}
	named := map[string]bool{}
	for _, u := range h.Ulimits {
		s.Rlimits = append(s.Rlimits, podmanRlimit{u.Name, uint64(u.Hard), uint64(u.Soft)})
		named[u.Name] = true
	}
	for _, name := range []string{"nofile", "nproc"} {
		if !named[name] {
			s.Rlimits = append(s.Rlimits, podmanRlimit{name, most[name], most[name]})
		}
	}
	return s
}

// later are the options of a tmpfs that Podman does not know.
func later(option string) bool {
	return slices.ContainsFunc([]string{"uid=", "gid=", "nr_inodes="}, func(name string) bool {
		return strings.HasPrefix(option, name)
	})
}

func rates(all []*blkiodev.ThrottleDevice) map[string]podmanRate {
	m := map[string]podmanRate{}
	for _, d := range all {
		m[d.Path] = podmanRate{d.Rate}
	}
	return m
}
