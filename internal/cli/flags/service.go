package flags

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// Services are the flags for the services of a sandbox. Each value begins with NAME=.
type Services struct{ images, env, ports []string }

// Add defines the flags.
func (o *Services) Add(f *pflag.FlagSet) {
	f.StringArrayVar(&o.images, "service", nil, "run the program of an image beside it, `NAME=IMAGE`, which it "+
		"reaches at the host name NAME, as db=postgres:15 (repeatable)")
	f.StringArrayVar(&o.env, "service-env", nil,
		"set a variable of a service, `NAME=VAR=VALUE`, or NAME=VAR to this shell's value (repeatable)")
	f.StringArrayVar(&o.ports, "service-port", nil,
		"wait until a service accepts connections at a port, `NAME=PORT`, where its image says neither (repeatable)")
}

// Request returns the services, in their order. Errors: InvalidArgument.
func (o *Services) Request(getenv func(string) string) (all []api.ServiceRequest, err error) {
	for _, text := range o.images {
		name, image, ok := strings.Cut(text, "=")
		if !ok || name == "" || image == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "--service %s is not NAME=IMAGE", text).
				WithHint("for example --service db=postgres:15")
		}
		if image, err = AbsoluteImage(image); err != nil {
			return nil, err
		}
		all = append(all, api.ServiceRequest{Name: name, Image: image})
	}
	of := func(flag, text string) (*api.ServiceRequest, string, error) {
		name, value, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(all, func(s api.ServiceRequest) bool { return s.Name == name })
		if i < 0 || value == "" {
			return nil, "", cove.Errorf(cove.InvalidArgument, "--%s %s does not begin with the name of a service and =", flag,
				text).WithHint("name one of --service")
		}
		return &all[i], value, nil
	}
	for _, text := range o.env {
		s, pair, err := of("service-env", text)
		if err != nil {
			return nil, err
		}
		more, err := Environment([]string{pair}, getenv)
		if err != nil {
			return nil, err
		}
		for name, value := range more {
			if err := CheckText("the variable "+name, name+value); err != nil {
				return nil, err
			}
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		maps.Copy(s.Env, more)
	}
	for _, text := range o.ports {
		s, value, err := of("service-port", text)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return nil, cove.Errorf(cove.InvalidArgument, "--service-port %s is no port", text).
				WithHint("for example --service-port db=5432")
		}
		s.Ports = append(s.Ports, uint16(port))
	}
	return all, nil
}
