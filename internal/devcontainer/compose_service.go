package devcontainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Instructions returns a Dockerfile for the service's image over that of name.
func (s Service) Instructions(name string) []byte {
	return []byte("FROM " + name + "\n" + strings.Join(s.Over, "\n") + "\n")
}

// quiet are members of a service that ask for what there is anyway, or that change nothing inside.
var quiet = []string{"image", "build", "environment", "env_file", "user", "depends_on", "links", "mem_limit", "cpus",
	"pids_limit", "profiles", "extends", "init", "tty", "stdin_open", "read_only", "cap_drop", "labels", "annotations",
	"logging", "restart", "pull_policy", "attach", "stop_grace_period", "name"}

const (
	itsOwn     = "a sandbox has its own, and shares none"
	noDevice   = "a sandbox has no device of this machine"
	atGateway  = "names and addresses are the gateway's; a service has the name of its key"
	ofKernel   = "settings of the kernel stay as they are"
	attachNone = "a file of a repository attaches nothing; copy it in the build of an image"
	hook       = "write the commands of devcontainer.json"
)

// leftMembers are members of a service that it does not take, beside those of widening.
var leftMembers = map[string]string{
	"cap_add": widening["capAdd"], "security_opt": widening["securityOpt"], "privileged": widening["privileged"],
	"devices": noDevice, "device_cgroup_rules": noDevice, "gpus": noDevice, "blkio_config": noDevice,
	"pid": itsOwn, "ipc": itsOwn, "uts": itsOwn, "userns_mode": itsOwn, "cgroup": itsOwn, "cgroup_parent": itsOwn,
	"volumes_from": itsOwn, "network_mode": "a sandbox has a network of its own, and reaches services by their names",
	"extra_hosts": atGateway, "dns": atGateway, "dns_opt": atGateway, "dns_search": atGateway, "hostname": atGateway,
	"domainname": atGateway, "mac_address": atGateway, "external_links": atGateway, "container_name": atGateway,
	"networks": atGateway,
	"sysctls":  ofKernel, "ulimits": ofKernel, "oom_kill_disable": ofKernel, "oom_score_adj": ofKernel,
	"secrets": attachNone, "configs": attachNone,
	"pre_start": hook, "post_start": hook, "pre_stop": hook,
	"use_api_socket": "it would reach the engine of this machine",
	"provider":       "it would run a program of this machine",
	"runtime":        "the engine is yours to choose", "isolation": "the engine is yours to choose",
	"platform": "the image is for this machine",
}

// members leaves out what a service says and does not get. own are those that are judged otherwise: with a reason they
// are left out, too.
func (c *composed) members(s compose.Service, own map[string]string) {
	for _, key := range s.Keys {
		p := c.at(s.Name, key)
		why, is := own[key]
		switch {
		case is && why == "" || slices.Contains(quiet, key):
		case is:
			c.leave(p, p.name, why)
		case key == "security_opt" && !slices.ContainsFunc(s.SecurityOpt, func(o string) bool {
			return !noEffect("--security-opt", o)
		}):
		case key == "networks" && !s.Named, key == "network_mode" && s.NetworkMode == "none":
		case key == "deploy":
			if s.Reserves {
				c.leave(p, p.name+".resources.reservations.devices", noDevice)
			}
		case leftMembers[key] != "":
			c.leave(p, p.name, leftMembers[key])
		default:
			c.leave(p, p.name, "Cove does not know it")
		}
	}
}

// limitsOf returns the limits of a service; those that are negative are none.
func limitsOf(s compose.Service) cove.Limits {
	return cove.Limits{Memory: max(s.Memory, 0), CPUs: max(s.CPUs, 0), PIDs: max(s.PIDs, 0)}
}

// main takes the service that is the sandbox.
func (c *composed) main(s compose.Service) error {
	image, build, err := c.image(s)
	if err != nil {
		return err
	}
	c.out.Image, c.out.Build = image, build
	if build != nil {
		c.buildLine = c.at(s.Name, "build").line
	}
	if c.out.Env, err = c.environmentOf(s); err != nil {
		return err
	}
	if s.User != "" {
		c.asked, c.out.User = c.at(s.Name, "user"), s.User
	}
	for _, m := range s.Volumes {
		p := c.at(s.Name, "volumes")
		if m.Type == "bind" {
			if from, err := c.inCheckout(p, m.Source, c.dir); err == nil && from == "." && c.mount == "" {
				c.mount = path.Clean(m.Target)
				c.leave(p, p.name+" "+m.Target, "the checkout of a sandbox is its own, at "+cove.Workspace)
				continue
			}
		}
		c.volume(p, m, &c.out.Volumes, widening["mounts"])
	}
	c.tmpfs(s, &c.out.Volumes)
	if s.WorkingDir != "" {
		p := c.at(s.Name, "working_dir")
		p.value, _ = json.Marshal(s.WorkingDir) // a string always marshals
		if err := c.workspaceFolder(p); err != nil {
			return err
		}
	}
	c.published(s, "")
	c.limits, c.limitsIn = limitsOf(s), c.at(s.Name).file
	c.wish = lower(c.wish, c.limits)
	c.members(s, map[string]string{
		"command": never["overrideCommand"], "entrypoint": never["overrideCommand"],
		"ports": "", "expose": "",
		"healthcheck": "a sandbox is ready when its guest is", "working_dir": "", "volumes": "", "tmpfs": "",
		"stop_signal": "a sandbox runs what it is told to, and is asked to end by SIGTERM",
	})
	return nil
}

// neighbour takes a service beside the sandbox.
func (c *composed) neighbour(s compose.Service) (err error) {
	of := Service{Name: s.Name, Args: s.Command}
	if of.Image, of.Build, err = c.image(s); err != nil {
		return err
	}
	if of.Build != nil {
		c.out.Refers = append(append(c.out.Refers, of.Build.Dockerfile), of.Build.Ignores()...)
	}
	if len(s.Command) > 0 {
		c.take(c.at(s.Name, "command"), "services."+s.Name+".command", strings.Join(s.Command, " "))
	}
	if of.Env, err = c.environmentOf(s); err != nil {
		return err
	}
	if err := c.servicePorts(s, &of); err != nil {
		return err
	}
	c.published(s, of.Name)
	if err := c.over(s, &of); err != nil {
		return err
	}
	if of.Limits = narrowed(lower(c.Limits, limitsOf(s)), c.Limits); of.Limits != (cove.Limits{}) {
		c.take(c.at(s.Name), "services."+s.Name+".limits", strings.TrimSpace(limitsText(of.Limits)))
	}
	for _, m := range s.Volumes {
		c.volume(c.at(s.Name, "volumes"), m, &of.Volumes, attachNone)
	}
	c.tmpfs(s, &of.Volumes)
	c.members(s, map[string]string{"command": "", "entrypoint": "", "ports": "", "expose": "", "healthcheck": "",
		"working_dir": "", "volumes": "", "tmpfs": "", "stop_signal": ""})
	c.out.Services = append(c.out.Services, of)
	all := make([]cove.Service, len(c.out.Services))
	for i, one := range c.out.Services {
		all[i] = cove.Service{Name: one.Name, Image: cmp.Or(one.Image, "built"), Ports: one.Ports, Volumes: one.Volumes}
	}
	if err := cove.CheckServices(all); err != nil {
		c.refuse(c.at(s.Name), "services."+s.Name, cove.ErrorMessage(err))
	}
	return nil
}

func limitsText(l cove.Limits) (text string) {
	if l.Memory > 0 {
		text += "memory " + sizeText(l.Memory) + " "
	}
	if l.CPUs > 0 {
		text += fmt.Sprintf("cpus %v ", l.CPUs)
	}
	if l.PIDs > 0 {
		text += fmt.Sprintf("pids %d", l.PIDs)
	}
	return text
}

// servicePorts takes the ports inside of a service, of TCP.
func (c *composed) servicePorts(s compose.Service, of *Service) error {
	add := func(p property, port uint64) {
		if !slices.Contains(of.Ports, uint16(port)) {
			of.Ports = append(of.Ports, uint16(port))
			c.take(p, "services."+s.Name+".port", strconv.FormatUint(port, 10))
		}
	}
	for _, port := range s.Ports {
		p := c.at(s.Name, "ports")
		switch {
		case port.Protocol != "" && port.Protocol != "tcp": // published leaves it out
			continue
		case port.Target == 0 || port.Target > math.MaxUint16:
			return p.wrong(c.file, "%d is no port", port.Target)
		}
		add(p, uint64(port.Target))
	}
	for _, text := range s.Expose {
		p := c.at(s.Name, "expose")
		number, protocol, _ := strings.Cut(text, "/")
		port, err := strconv.ParseUint(number, 10, 16)
		switch {
		case protocol != "" && protocol != "tcp":
			c.leave(p, p.name+" "+text, onlyTCP)
		case err != nil || port == 0:
			return p.wrong(c.file, "%.40q is no port", text)
		default:
			add(p, port)
		}
	}
	return nil
}

// account is a user with a group, by name or number, as an instruction of a Dockerfile has it.
var account = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)

// signal is a signal by its name or number.
var signal = pattern.New(`^[A-Za-z0-9+-]{1,20}$`)

// over has what a service says in place of its image be said by an image of its own.
func (c *composed) over(s compose.Service, of *Service) error {
	add := func(p property, value, instruction string) {
		of.Over = append(of.Over, instruction)
		c.take(p, p.name, value)
	}
	if p := c.at(s.Name, "user"); s.User != "" {
		if !account.Regexp().MatchString(s.User) {
			return p.wrong(c.file, "%.80q is no user", s.User)
		}
		add(p, s.User, "USER "+s.User)
	}
	if p := c.at(s.Name, "working_dir"); s.WorkingDir != "" {
		dir := path.Clean(s.WorkingDir)
		if !path.IsAbs(dir) || strings.ContainsFunc(dir, func(r rune) bool {
			return r <= ' ' || r == 0x7f || strings.ContainsRune("$\"'\\", r)
		}) {
			return p.wrong(c.file, "%.200q is no absolute path", dir)
		}
		add(p, dir, "WORKDIR "+dir)
	}
	if s.Entrypoint != nil {
		add(c.at(s.Name, "entrypoint"), strings.Join(s.Entrypoint, " "),
			"ENTRYPOINT "+words(append([]string{}, s.Entrypoint...)...)+"\nCMD []")
	}
	if p := c.at(s.Name, "stop_signal"); s.StopSignal != "" {
		if !signal.Regexp().MatchString(s.StopSignal) {
			return p.wrong(c.file, "%.80q is no signal", s.StopSignal)
		}
		add(p, s.StopSignal, "STOPSIGNAL "+s.StopSignal)
	}
	return c.health(s, add)
}

func (c *composed) health(s compose.Service, add func(p property, value, instruction string)) error {
	h, p := s.Health, c.at(s.Name, "healthcheck")
	if h == nil {
		return nil
	}
	if h.Disable || len(h.Test) == 1 && h.Test[0] == "NONE" {
		add(p, "none", "HEALTHCHECK NONE")
		return nil
	}
	var args []string
	switch {
	case len(h.Test) == 2 && h.Test[0] == "CMD-SHELL":
		args = []string{"/bin/sh", "-c", h.Test[1]}
	case len(h.Test) > 1 && h.Test[0] == "CMD":
		args = h.Test[1:]
	case len(h.Test) == 0:
		c.leave(p, p.name, "it has no test, and that of the image stays as it is")
		return nil
	default:
		return p.wrong(c.file, "its test is no command")
	}
	line := "HEALTHCHECK"
	for _, o := range []struct {
		name  string
		value time.Duration
	}{{"interval", h.Interval}, {"timeout", h.Timeout}, {"start-period", h.StartPeriod}} {
		if o.value >= time.Millisecond {
			line += " --" + o.name + "=" + o.value.String()
		}
	}
	if h.Retries > 0 && h.Retries <= math.MaxInt32 {
		line += fmt.Sprintf(" --retries=%d", h.Retries)
	}
	add(p, strings.Join(args, " "), line+" CMD "+words(args...))
	return nil
}
