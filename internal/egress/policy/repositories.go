package policy

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Repositories are repositories of GitHub servers, to which the use of their API is limited.
type Repositories []repositories

// repositories stands for one repository, or for all of an owner.
type repositories struct {
	host  Host   // of git and web pages
	owner string // lower case; "*" for every one
	name  string // in the same form
}

// parseRepositories reads "[HOST/]OWNER/NAME", where NAME may be *, and OWNER with it. Errors: InvalidArgument.
func parseRepositories(s string) (repositories, error) {
	host, path, has := strings.Cut(s, "/")
	if strings.Count(s, "/") == 1 {
		host, path, has = "github.com", s, true
	}
	owner, name, _ := strings.Cut(path, "/")
	if !has || !repositoryName(owner) || !repositoryName(name) || owner == "*" && name != "*" {
		return repositories{}, cove.Errorf(cove.InvalidArgument, "%s is no repository of GitHub", quote(s)).
			WithHint("name it as OWNER/NAME, or OWNER/* for all of an owner; before it the host of an Enterprise server and a /")
	}
	h, err := ParseHost(host)
	return repositories{host: h, owner: strings.ToLower(owner), name: strings.ToLower(name)}, err
}

// repositoryName reports whether s is an owner or a name in GitHub's form, or "*".
func repositoryName(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return s == "*" || s != "" && s != "." && s != ".." && strings.Trim(s, allowed) == ""
}

func (r repositories) String() string {
	s := r.owner + "/" + r.name
	if r.host.Name() != "github.com" {
		s = r.host.String() + "/" + s
	}
	return s
}

// RepositoryAt returns the repository of a remote at a GitHub server. Errors: InvalidArgument for another path.
func RepositoryAt(r Remote) (Repositories, error) {
	name := r.Host.String() + "/" + strings.TrimPrefix(r.Path, "/")
	one, err := parseRepositories(name)
	if err != nil {
		return nil, err
	}
	return Repositories{one}, nil
}

// Has reports whether it has the repository OWNER/NAME of a host, in any case of letters.
func (r Repositories) Has(host Host, name string) bool {
	owner, name, _ := strings.Cut(strings.ToLower(name), "/")
	if !repositoryName(owner) || !repositoryName(name) {
		return false
	}
	return slices.ContainsFunc(r, func(one repositories) bool {
		return one.host == host && (one.owner == owner || one.owner == "*") && (one.name == name || one.name == "*")
	})
}

// String lists the repositories.
func (r Repositories) String() string {
	var all []string
	for _, one := range r {
		all = append(all, one.String())
	}
	return strings.Join(all, ", ")
}
