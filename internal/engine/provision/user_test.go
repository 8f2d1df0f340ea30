package provision_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

// TestUser: which user programs are, by what a request, an image and an engine say.
func TestUser(t *testing.T) {
	tree := t.TempDir()
	for _, dir := range []string{"etc", "home/node"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const passwd = "root:x:0:0::/root:/bin/bash\nnode:x:1001:50::/home/node:/bin/bash\nwww:x:33:33::/gone:/sbin/nologin\n"
	if err := os.WriteFile(filepath.Join(tree, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	node := cove.User{UID: 1001, GID: 50, Name: "node", Home: "/home/node", Shell: "/bin/bash"}
	agent := node
	agent.Home, agent.Agent = cove.Home, true
	beside := node
	beside.Root, beside.Agent = true, true
	www := cove.User{UID: 33, GID: 33, Name: "www", Home: cove.Home, Shell: "/bin/sh"}
	number := cove.User{UID: 7, Name: "7", Home: cove.Home, Shell: "/bin/sh"}
	root := func(user string) engine.Rootfs { return engine.Rootfs{Kind: engine.RootfsDir, Dir: tree, User: user} }
	held := engine.Rootfs{Kind: engine.RootfsImage, Image: "x", User: "node"}
	host := engine.Rootfs{Kind: engine.RootfsHost}
	const invalid, lack = cove.InvalidArgument, cove.Unsupported
	code, lasting, inside := cove.CodeUser, cove.AgentUser, cove.RootUser
	for name, c := range map[string]struct {
		own     cove.User
		asked   string
		instead string // in the place of what the image says
		root    engine.Rootfs
		lacks   bool
		want    cove.User
		code    cove.Code
		says    string
	}{
		"nothing":                   {own: code, root: root(""), want: code},
		"the image's":               {own: code, root: root("node"), want: node},
		"with a group":              {own: code, root: root("node:7"), want: with(node, 7)},
		"a number":                  {own: code, root: root("7"), want: number},
		"of a lasting sandbox":      {own: lasting, root: root("node"), want: agent},
		"in the place of its own":   {own: code, instead: "node", root: root("www"), want: node},
		"root in its place":         {own: code, instead: "root", root: root("www"), want: code},
		"unknown in its place":      {own: code, instead: "bob", root: root("www"), code: cove.NotFound, says: "image_user"},
		"in its place, and asked":   {own: code, instead: "node", asked: "www", root: root(""), want: www},
		"in its place, root inside": {own: inside, instead: "node", root: root(""), want: inside},
		"in its place, without":     {own: code, instead: "node", root: root(""), lacks: true, want: code},
		"of the host's":             {own: code, instead: "node", root: host, want: code},
		"asked for":                 {own: code, asked: "www", root: root("node"), want: www},
		"root of the image":         {own: code, root: root("root"), want: code},
		"0 of the image":            {own: code, root: root("0:0"), want: code},
		"root inside":               {own: inside, root: root("node"), want: inside},
		"root inside, and so asked": {own: inside, asked: "0", root: root("node"), want: inside},
		"root asked for":            {own: code, asked: "root", root: root(""), code: cove.Forbidden, says: "--root"},
		"0 asked for":               {own: lasting, asked: "0:5", root: root(""), code: cove.Forbidden, says: "--root"},
		"beside root inside":        {own: inside, asked: "node", root: root(""), want: beside},
		"unknown of the image":      {own: code, root: root("bob"), code: cove.NotFound, says: "the image says"},
		"unknown":                   {own: code, asked: "bob", root: root(""), code: cove.NotFound, says: "/etc/passwd"},
		"too large":                 {own: code, root: root("70000"), code: invalid, says: "--user"},
		"host":                      {own: code, root: host, want: code},
		"of the host":               {own: code, asked: "33", root: host, code: invalid, says: "--image"},
		"of no root filesystem":     {own: code, asked: "33", code: invalid, says: "--image"},
		"an engine without":         {own: code, root: root("node"), lacks: true, want: code},
		"asked of one without":      {own: code, asked: "7", root: root(""), lacks: true, code: lack, says: "why"},
		"an engine's own image":     {own: code, root: held, want: code},
		"asked of its own":          {own: code, asked: "7", root: held, code: lack, says: "--user"},
	} {
		t.Run(name, func(t *testing.T) {
			caps := fake.New(fake.Options{}).Capabilities()
			caps.Users, caps.Missing = !c.lacks, map[string]string{"users": "this is why"}
			e := fake.New(fake.Options{Capabilities: &caps})
			spec := cove.Spec{UserName: c.asked, ImageUser: c.instead, Shape: cove.Shape{User: c.own}}
			if c.own.Agent {
				spec.Lifetime = cove.LifetimeDetached
			}
			u, err := provision.User(e, c.root, spec)
			if c.code != "" {
				if said := cove.ErrorMessage(err) + cove.ErrorHint(err); cove.ErrorCode(err) != c.code ||
					!strings.Contains(said, c.says) {
					t.Errorf("%s: %s", cove.ErrorCode(err), said)
				}
			} else if err != nil || u != c.want {
				t.Errorf("%+v, %v, want %+v", u, err, c.want)
			}
		})
	}
}

func with(u cove.User, gid int) cove.User {
	u.GID, u.Groups = gid, ""
	return u
}
