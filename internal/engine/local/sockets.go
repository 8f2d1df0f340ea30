package local

import "cmp"

// mostSockets is far more than programs have in flight, and little beside what the kernel lets all sockets of a machine
// have, which is some per cent of its memory.
const mostSockets = 64 << 20

// SocketMemory returns how many bytes the buffers of a sandbox's TCP and UDP may hold where the kernel counts them
// apart from memory: a quarter of the sandbox's limit of memory, which is 0 where it has none.
func SocketMemory(memory int64) int64 { return min(cmp.Or(memory/4, mostSockets), mostSockets) }
