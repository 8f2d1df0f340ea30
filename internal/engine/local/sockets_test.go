package local

import "testing"

func TestSocketMemory(t *testing.T) {
	for memory, want := range map[int64]int64{
		0: 64 << 20, 16 << 20: 4 << 20, 256 << 20: 64 << 20, 4 << 30: 64 << 20,
	} {
		if got := SocketMemory(memory); got != want {
			t.Errorf("beside %d bytes of memory: %d, want %d", memory, got, want)
		}
	}
}
