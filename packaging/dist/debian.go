package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debian writes the Debian package of an architecture.
func (r *release) debian(to, arch string, tree []file) error {
	work, err := os.MkdirTemp("", "cove-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	info := &nfpm.Info{
		Name:          "cove",
		Arch:          arch,
		Platform:      "linux",
		Version:       r.debianVersion(),
		VersionSchema: "none",
		Section:       "admin",
		Priority:      "optional",
		Maintainer:    "The authors of Cove <cove@example.invalid>",
		Description: "sandboxes for untrusted code and coding agents\n" +
			"Cove runs untrusted code and coding agents in sandboxes: nothing inside\n" +
			"reaches the host, other sandboxes or the network beyond policy, and no\n" +
			"credential enters.",
		License:         "Apache-2.0",
		MTime:           r.epoch,
		DisableGlobbing: true,
	}
	info.Recommends = []string{"git", "ca-certificates", "uidmap", "e2fsprogs"}
	info.Suggests = []string{"docker.io", "bash-completion"}
	script := func(name string) string { return filepath.Join(r.source, "packaging", "debian", name) }
	info.Scripts = nfpm.Scripts{
		PostInstall: script("postinst"),
		PreRemove:   script("prerm"),
		PostRemove:  script("postrm"),
	}
	for i, f := range tree {
		c := &files.Content{Destination: "/usr/" + f.path,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.epoch}}
		if f.link != "" {
			c.Type, c.Source = files.TypeSymlink, f.link
		} else {
			c.Source = filepath.Join(work, fmt.Sprint(i))
			if err := os.WriteFile(c.Source, f.data, 0o600); err != nil {
				return err
			}
		}
		info.Contents = append(info.Contents, c)
	}
	info.Contents = append(
		info.Contents,
		&files.Content{Destination: "/etc/default/cove", Source: script("cove.default"),
			Type: files.TypeConfigNoReplace, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o600,
				MTime: r.epoch}},
	)
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := deb.Default.Package(info, out); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

var released = regexp.MustCompile(`^[0-9]+\.`)

// debianVersion is the version of a release, or of a commit, which sorts by its time and before every release.
func (r *release) debianVersion() string {
	if released.MatchString(r.version) {
		return r.version
	}
	return "0~git" + r.epoch.Format("20060102150405") + "." + r.version
}
