package runtime

// Image is the name of the runtime that runs the program of an image: it has no code, and the image or the request
// names its command.
const Image = "image"

var image = Runtime{Name: Image}

// OfImage reports whether a runtime runs the program of an image.
func (r Runtime) OfImage() bool { return r.Name == Image }
