package rootfs

// Stack is a root filesystem as directories of the host, the lowest first: a tree, and changes to it in the form of
// overlayfs. In those a device 0:0 stands for a file that went, and user.overlay.opaque is at a directory that hides
// what is below.
type Stack []string
