//go:build linux

package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// javaClient prints what hosts say, as Java trusts by itself.
const javaClient = `
import java.io.*;
import java.net.*;
public class Main {
	public static void main(String[] args) throws Exception {
		for (String host : args) {
			try (InputStream in = new URI("https://" + host + ".lab.test/x").toURL().openStream()) { in.transferTo(System.out); }
			catch (Exception e) { System.out.println(e); }
		}
	}
}`

// TestJava: Java trusts the sandbox's authority without being told, on every
// version there is, and roots beside it, for what passes through.
func TestJava(t *testing.T) {
	all, err := filepath.Glob("/usr/lib/jvm/*/bin/javac")
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	tried := map[string]bool{}
	for _, compiler := range all {
		home, err := filepath.EvalSymlinks(filepath.Dir(filepath.Dir(compiler)))
		if err != nil || tried[home] {
			continue
		}
		tried[home] = true
		t.Run(filepath.Base(home), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "Main.java")
			if err := os.WriteFile(file, []byte(javaClient), 0o644); err != nil {
				t.Fatal(err)
			}
			policy := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(policy,
				[]byte("rules:\n  - hosts: good.lab.test\n  - hosts: pinned.lab.test\n    pass_through: true\n"),
				0o644); err != nil {
				t.Fatal(err)
			}
			java := filepath.Join(home, "bin", "java")
			got := l.inside(t, java+` -Xmx256m Main.java good pinned bad 2>&1`, "--policy", policy, "--file", file)
			for _, want := range []string{"GET good.lab.test/x over https\n", "GET pinned.lab.test/x over https\n"} {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("%s says %+v", java, got)
				}
			}
			if strings.Contains(got.stdout, "GET bad") || strings.Contains(got.stdout, "PKIX") ||
				strings.Contains(got.stdout, "Picked up") {
				t.Errorf("%s says %+v", java, got)
			}
		})
	}
	if len(tried) == 0 {
		t.Skip("no JDK is installed: apt-get install default-jdk-headless")
	}
}
