package vmtest

import (
	"testing"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

// TestEmulators runs programs of arm64 where the machine has no emulator, one that is looked up in the sandbox, one as
// Debian's qemu-user-static registers it, and one that honours setuid bits, too.
func TestEmulators(t *testing.T) {
	vm := Boot(t, Config{Programs: []string{"cmd/cove", "cmd/cove-server", "cmd/cove-guest"}})
	step := func(t *testing.T, as protocol.Account, script, want string) {
		t.Helper()
		got := vm.Run(t, protocol.Step{As: as, Args: []string{"/bin/bash", "-c", "exec 2>~/errors\n" + script},
			Env: []string{"PATH=/cove/bin:/usr/bin:/bin"}})
		if got.Output == want && got.ExitCode == 0 && len(got.Left) == 0 {
			return
		}
		// There, cove may say that it waits for a server.
		errors := vm.Run(t, protocol.Step{As: as, Args: []string{"/bin/bash", "-c", "cat ~/errors"}})
		t.Errorf("%s\nexit code %d, left behind %q, standard output %q, want %q; standard error:\n%s", script, got.ExitCode,
			got.Left, got.Output, want, errors.Output)
	}
	refusals := 1 // test/sandboxes has the others
	if everything {
		refusals = 3
	}
	for _, c := range []struct {
		name, flags string // of the registration; without flags there is none
		rows        []emulatorRow
	}{
		{"none", "", append([]emulatorRow{{"image", foreignImage, "", ""}},
			refused("is no program for this machine (linux/amd64)", protocol.Delegated)[:refusals]...)},
		{"unseen", "OP", refused("qemu-aarch64 is registered with binfmt_misc without the flag F", protocol.Root)[:refusals]},
		{"fixed", "OPF", emulated},
		{"credentials", "OCPF", []emulatorRow{{"setuid", setuid, "root\nrefused\n", protocol.Root}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			step(t, protocol.Root, register(c.flags), "")
			for _, as := range []protocol.Account{protocol.Root, protocol.Delegated} {
				for _, row := range c.rows {
					if row.as == "" || row.as == as || everything {
						t.Run(string(as)+"/"+row.name, func(t *testing.T) { step(t, as, row.script, row.want) })
					}
				}
			}
		})
	}
}

// emulatorRow is a script with its output.
type emulatorRow struct {
	name, script, want string
	as                 protocol.Account // unless everything is run; empty: each
}

// register returns a script that registers Debian's emulator with flags, in place of the one before.
func register(flags string) string {
	const dir = "/proc/sys/fs/binfmt_misc/"
	script := "if [ -e " + dir + "qemu-aarch64 ]; then echo -1 >" + dir + "qemu-aarch64; fi\n"
	if flags != "" {
		script += "sed 's/:[A-Z]*$/:" + flags + "/' /usr/lib/binfmt.d/qemu-aarch64.conf >" + dir + "register\n"
	}
	return script
}

// foreignImage makes an image without running a program of it.
const foreignImage = `mkdir /tmp/$USER && cd /tmp/$USER && cp /usr/lib/arm64/busybox . &&
printf 'root::0:0:root:/root:/bin/sh\nada::1000:1000::/:/bin/sh\n' >passwd && cat >Dockerfile <<'end' &&
FROM scratch
COPY busybox /bin/sh
COPY busybox /bin/uname
COPY --chmod=4755 busybox /usr/bin/su
COPY passwd /etc/
CMD ["uname", "-m"]
end
(cat Dockerfile; echo 'RUN uname -m >/machine') >Dockerfile.run &&
cove image build -t small --platform linux/arm64 . >log 2>&1 || cat log`

// refused returns rows of programs that are not started, each with the error that says why.
func refused(why string, as protocol.Account) []emulatorRow {
	rows := []emulatorRow{
		{name: "run", script: "cove run --image small"},
		{name: "exec", script: `cove new --empty --name box --image small --no-attach 2>&1 | grep -v ^cove:
cove exec box -- uname; code=$?
cove destroy --yes box; cove server stop; (exit $code)`},
		{name: "build", script: "cd /tmp/$USER; cove image build --platform linux/arm64 -f Dockerfile.run ."},
	}
	for i := range rows {
		rows[i].script = "{ " + rows[i].script + "\n} 2>&1 | grep -o '" + why + "' | sort -u; echo ${PIPESTATUS[0]}"
		rows[i].want, rows[i].as = why+"\n127\n", as
	}
	return rows
}

// emulated are rows of programs that run. Of the machine's files they see the emulator's own, which they cannot change.
var emulated = []emulatorRow{
	{"build", "cd /tmp/$USER; cove image build -t built --platform linux/arm64 -f Dockerfile.run . >log 2>&1 || cat log",
		"", ""},
	{"run", "cove run --timeout 60s --image built --entrypoint sh -- -c '" + look + "'", seen, protocol.Delegated},
	{"lasting", `cove new --root --empty --name box --image built --no-attach >log 2>&1 || cat log
cove exec box -- sh -c '` + look + `'
cove destroy --yes box >log; cove server stop >log`, seen, protocol.Root},
}

// look has a shell look at the file of its own process from another one, for which the emulator does not answer.
const (
	look = `read built </machine; echo $built $(uname -m); echo /usr/*/*
(: </proc/$$/exe) && echo read; (: >>/proc/$$/exe) 2>/dev/null || echo not written`
	seen = "aarch64 aarch64\n/usr/bin/su\nread\nnot written\n"
)

// setuid has an ordinary user of a sandbox become root of it, who is another user outside, by a setuid program; and
// another one of a sandbox without root inside, where that does nothing.
const setuid = `inside='read _ outside _ </proc/self/uid_map; [ $outside != 0 ] && : >/made && echo root'
cove run --timeout 60s --root --image built --entrypoint su -- -s /usr/bin/su ada -c "$inside"
cove run --timeout 60s --user 1000 --image built --entrypoint su -- -c "$inside" 2>/dev/null || echo refused`
