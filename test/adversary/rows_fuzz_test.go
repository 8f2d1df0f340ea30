package adversary

import "testing"

func TestMountsAmong(t *testing.T) {
	const text = `22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /tmp/other rw - tmpfs none rw
31 22 0:31 / /tmp/watched/mount rw - tmpfs none rw
29 22 0:29 / /tmpfs rw - tmpfs none rw
`
	const want = "/ / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
		"/ /tmp/watched/mount rw - tmpfs none rw\n" +
		"/ /tmpfs rw - tmpfs none rw"
	if got := mountsAmong(text, "/tmp", "/tmp/watched"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
